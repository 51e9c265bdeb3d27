"""Rows of TRL's SFT and DPO trainers: pairs, chats that end with the assistant, completions that are messages."""

import pytest

from gimbal.environments.dataset import Rows
from gimbal.records import Task

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


def test_a_pair_whose_sides_are_the_same_is_refused_by_its_row():
    for same in ("4", [FOUR], [{**FOUR, "content": None, "tool_calls": [{"function": {"name": "add"}}]}]):
        with pytest.raises(ValueError, match=r"row 1: chosen and rejected say the same.*take the row out"):
            list(
                Rows(
                    rows=[
                        {"prompt": "1", "chosen": "1", "rejected": "2"},
                        {"prompt": "2", "chosen": same, "rejected": same},
                    ]
                )
            )


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


CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}],
}
TOLD = {"role": "tool", "content": "4"}
KEPT = {**CALL, "content": ""}


@pytest.mark.parametrize("absent", [False, True])
def test_an_answer_that_calls_tools_is_kept_whole(absent):
    """Its text alone is empty: runs learned to say nothing."""
    call = {key: value for key, value in CALL.items() if key != "content"} if absent else CALL
    tools = [{"type": "function", "function": {"name": "add"}}]
    assert task({"messages": [USER, call], "tools": tools}).columns["completion"] == KEPT
    assert task({"prompt": [USER], "completion": [call], "tools": tools}).columns["completion"] == KEPT
    pair = task({"prompt": [USER], "chosen": [call], "rejected": [FIVE]})
    assert (pair.columns["completion"], pair.columns["score"]) == ([KEPT, "5"], [1.0, 0.0])
    assert task({"messages": [USER, call, TOLD, FOUR]}).columns["completion"] == "4"


def test_keys_that_arrow_fills_in_say_nothing():
    arrow = {**CALL, "thinking": None, "tool_calls": [{**CALL["tool_calls"][0], "id": None}]}
    assert task({"messages": [{**USER, "tool_calls": None}, arrow]}).columns["completion"] == KEPT
    assert task({"messages": [USER, {**FOUR, "tool_calls": None}]}).columns["completion"] == "4"
    thought = task({"messages": [USER, {**FOUR, "reasoning_content": "two and two"}]})
    assert thought.columns["completion"] == {"role": "assistant", "content": "4", "reasoning_content": "two and two"}
    parts = [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]
    assert task({"messages": [USER, {**FOUR, "content": parts}]}).columns["completion"] == "42"


def test_calls_are_read_by_a_person():
    chat = [USER, {**CALL, "content": "Let me add."}, TOLD]
    assert (
        Task(id="t", columns={"messages": chat}).asked == 'user: 2 + 2\nassistant: Let me add. add({"a": 2})\ntool: 4'
    )
    strange = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}, 7]}
    assert Task(id="t", columns={"messages": [strange]}).asked == "assistant: f({}) 7()"


@pytest.mark.parametrize("calls", ["add", [{"function": {"arguments": {}}}], [7], {"name": "add"}])
def test_calls_that_name_no_function_are_refused_as_the_row_is_read(calls):
    """A template would fail on them where their batch comes, in the middle of a run."""
    for row in (
        {"messages": [USER, {**FOUR, "tool_calls": calls}]},
        {"prompt": "a", "completion": [{**FOUR, "tool_calls": calls}]},
    ):
        with pytest.raises(ValueError, match="a list of objects is wanted, each with a function that has a name"):
            task(row)
