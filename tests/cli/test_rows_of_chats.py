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
        status = cli.main(["train", recipe, "tasks=rows.jsonl", *(words or ["held_out=none"]), "--dry-run"])
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
    said = refused(recipe, [row], "held_out=none", "tasks.prompt=typo")
    assert "line 1: there is no column 'typo'; columns: " in said and f"{', '.join(row)} (tasks.prompt=" in said


@pytest.mark.parametrize(
    ("recipe", "row", "column"),
    [
        ("dpo", {"prompt": "2 + 2 =", "good": "4", "bad": "5"}, "completion"),
        ("dpo", {"prompt": "2 + 2 =", "completion": "4"}, "score"),
        ("sft", {"prompt": "2 + 2 =", "response": "4"}, "completion"),
    ],
)
def test_a_dry_run_refuses_rows_that_hold_no_answers(refused, recipe, row, column):
    said = refused(recipe, [row])
    assert f"task rows:1 has no column {column!r}; columns: " in said and "for DPO prompt, chosen and rejected" in said
    assert all(name in said for name in row if name != "prompt")


def test_figures_of_an_evaluation_that_is_not_there(refused):
    said = refused("grpo", [{"prompt": "2 + 2 ="}], "reward=ExactAnswer()", "save_best=score")
    assert "this run has none: add held_out=FILE or held_out=0.1" in said


def test_one_with_a_point_is_no_number_of_held_out_rows(refused):
    said = refused("grpo", [{"prompt": "2 + 2 ="}] * 3, "reward=ExactAnswer()", "held_out=1.0")
    assert "held_out=1.0 could mean all tasks or one" in said


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
