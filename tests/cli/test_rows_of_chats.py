"""Rows of chats as users have them, through the command line: which column is asked, and what is refused in a sentence."""

import json
from pathlib import Path

import pytest

from gimbal import cli

SYSTEM, USER, FOUR, FIVE = (
    {"role": role, "content": text}
    for role, text in (("system", "Be brief."), ("user", "2 + 2"), ("assistant", "4"), ("assistant", "5"))
)


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """The sentence by which a dry run refuses these rows."""
    monkeypatch.chdir(tmp_path)

    def ask(recipe, rows, *words):
        Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        status = cli.main(["train", recipe, "tasks=rows.jsonl", "held_out=none", *words, "--dry-run"])
        out, err = capsys.readouterr()
        assert status == 2 and err.count("\n") == 1 and not out, (status, out, err)
        return err

    return ask


@pytest.mark.parametrize(
    ("recipe", "row"),
    [
        ("grpo", {"messages": [USER]}),
        ("sft", {"messages": [USER, FOUR]}),
        ("dpo", {"chosen": [USER, FOUR], "rejected": [USER, FIVE]}),
        ("dpo", {"prompt": [USER], "chosen": "4", "rejected": "5"}),
        ("sft", {"prompt": [USER], "completion": [FOUR]}),
    ],
)
def test_a_column_that_was_named_and_is_not_there_is_no_other_column(refused, recipe, row):
    said = refused(recipe, [row], "tasks.prompt=typo")
    assert "line 1: there is no column 'typo'; columns: " in said and f"{', '.join(row)} (tasks.prompt=" in said


@pytest.mark.parametrize("chat", [[SYSTEM], [SYSTEM, SYSTEM], [USER, SYSTEM]])
def test_a_chat_that_ends_with_the_system_asks_nothing(refused, chat):
    said = refused("grpo", [{"messages": [USER]}, {"messages": chat}])
    assert "line 2: the chat in 'messages' ends with a system message" in said and "end it with a user's" in said


@pytest.mark.slow
def test_a_column_inside_of_another_is_found_beside_a_pair(tmp_path, monkeypatch, single_thread, capsys):
    monkeypatch.chdir(tmp_path)
    row = {"extra": {"question": "2 + 2 ="}, "chosen": "4", "rejected": "5"}
    Path("rows.jsonl").write_text(json.dumps(row) + "\n")
    words = ["tasks=rows.jsonl", "tasks.prompt=extra.question", "held_out=none", "steps=1", "prompts_per_step=1"]
    assert cli.main(["train", "dpo", *words, "threads=1"]) == 0, capsys.readouterr().err
    rollouts = [json.loads(line) for line in Path("runs/dpo-0/rollouts.jsonl").read_text().splitlines()]
    assert sorted(row["text"] for row in rollouts) == ["4", "5"]
