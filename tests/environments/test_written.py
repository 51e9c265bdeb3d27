"""Rows of TRL's SFT and DPO trainers: pairs, chats that end with the assistant, completions that are messages."""

import pytest

from gimbal.environments.dataset import Rows

USER, FOUR, FIVE = (
    {"role": role, "content": text} for role, text in (("user", "2 + 2"), ("assistant", "4"), ("assistant", "5"))
)


def task(row):
    return Rows(rows=[row])[0]


@pytest.mark.parametrize("sides", [("4", "5"), ([FOUR], [FIVE])])
def test_a_pair_is_two_completions_with_scores(sides):
    read = task({"prompt": "2 + 2", "chosen": sides[0], "rejected": sides[1]})
    assert (read.prompt, read.columns["completion"], read.columns["score"]) == ("2 + 2", ["4", "5"], [1.0, 0.0])


def test_a_pair_of_whole_chats_shares_its_prompt():
    read = task({"chosen": [USER, FOUR], "rejected": [USER, FIVE]})
    assert (read.columns["messages"], read.columns["completion"]) == ([USER], ["4", "5"])


def test_chats_that_differ_before_the_last_message_are_no_pair():
    with pytest.raises(ValueError, match="differ in the last message only"):
        task({"chosen": [USER, FOUR], "rejected": [{**USER, "content": "2 + 3"}, FIVE]})
    with pytest.raises(ValueError, match="expected texts, or chats of one assistant message"):
        task({"prompt": "2 + 2", "chosen": [USER, FOUR], "rejected": "5"})


def test_the_last_message_of_a_chat_is_what_is_learned():
    read = task({"messages": [USER, FOUR], "level": 3})
    assert (read.columns["messages"], read.columns["completion"], read.columns["level"]) == ([USER], "4", 3)


def test_a_completion_may_be_an_assistant_message():
    assert task({"prompt": [USER], "completion": [FOUR]}).columns["completion"] == "4"
    assert task({"prompt": "2 + 2", "completion": ["4", "5"]}).columns["completion"] == ["4", "5"]


def test_a_chat_that_asks_stays_a_prompt():
    assert task({"messages": [USER], "answer": "4"}).columns["messages"] == [USER]  # a prompt, to be sampled
    with pytest.raises(ValueError, match="columns: messages, level"):  # those of the file
        task({"messages": [{"role": "assistant", "content": None}], "level": 3})
    assert Rows(rows=[{"messages": [USER]}], prompt="messages")[0].columns["messages"] == [USER]
