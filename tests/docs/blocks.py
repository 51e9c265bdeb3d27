"""The blocks of a page: files to write, Python to run, commands to type; and commands made small enough to run in a test."""

import re
import shlex
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)
# What a run of a test is given in place of what the page says, and other names of it.
SMALL = {"steps": "1", "prompts_per_step": "2", "num_generations": "2", "max_length": "8", "checkpoint_every": "1"}
OTHER_NAMES = {
    "max_completion_length": "max_length",
    "sampling.max_length": "max_length",
    "save_steps": "checkpoint_every",
}
FIXED = {"sft": ("num_generations",)}  # sizes that a recipe's data decide


def read(name):
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(text):
    """(language, title, code) of each."""
    return FENCE.findall(text)


def write_files(text, into):
    """The blocks with a title, as files."""
    for _, title, code in blocks(text):
        if title:
            (Path(into) / title).write_text(code, encoding="utf-8")


def commands(text):
    """The lines of blocks without a language."""
    lines = [line for language, _, code in blocks(text) if not language for line in code.splitlines()]
    return [line for line in lines if line.strip()]


def words_of(line):
    """The words of a gimbal command; torchrun's launcher and environment variables are left out."""
    words = shlex.split(line, comments=True)
    return words[words.index("gimbal") + 1 :] if "gimbal" in words else []


def small(words, given=()):
    """A train command with few, short rollouts, one thread and one step; nothing else is changed."""
    recipe = words[1] if len(words) > 1 and "=" not in words[1] and not words[1].startswith("-") else ""
    resumed = "--resume" in words
    wanted = {} if resumed else {key: value for key, value in SMALL.items() if key not in FIXED.get(recipe, ())}
    wanted |= {} if resumed else {"threads": "1"}
    if any(word.startswith("held_out") for word in words):
        wanted["held_out.samples"] = "1"
    wanted |= dict(given)
    kept = []
    for word in words:
        key = word.partition("=")[0]
        if "=" not in word or word.startswith("-") or OTHER_NAMES.get(key, key) not in wanted:
            kept.append(word)
    return [*kept, *(f"{key}={value}" for key, value in wanted.items())]
