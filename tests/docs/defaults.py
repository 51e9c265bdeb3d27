"""The table of docs/from-trl.md with the defaults that differ from TRL's."""

import json
import re

import blocks

from gimbal import recipes

SECTION = blocks.read("from-trl.md").partition("## Defaults that differ from TRL's\n")[2].partition("\n## ")[0]
ROWS = [row.split("|") for row in re.findall(r"^\|(.*)\|$", SECTION, re.MULTILINE) if "---" not in row]
HEAD, *LINES = [[cell.strip() for cell in row] for row in ROWS]


def settings(column):
    """(name, value) of each `name=value` in a column."""
    assert all(len(row) == len(HEAD) for row in LINES)
    cells = [row[HEAD.index(column)] for row in LINES]
    code = [quoted.strip("'") for cell in cells for quoted in re.findall(r"`([^`]+)`", cell)]
    return [tuple(word.split("=", 1)) for words in code for word in words.split() if "=" in word]


def pretrained(directory, **changes):
    """The run of `gimbal train grpo model=PATH` with a model of 0.5 B parameters, of which there is no more than is asked here."""
    shape = {"vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24}
    heads = {"num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 32768}
    (directory / "config.json").write_text(
        json.dumps({"model_type": "qwen2", **shape, **heads, "tie_word_embeddings": True})
    )
    with (directory / "model.safetensors").open("wb") as file:
        file.truncate(200_000_000)  # a hole: it takes no room
    return recipes.load("grpo", {"model": str(directory), **changes}, lambda sentence: None)
