"""Streams of facts: what is asked stands in them once, and turns written for SFT are those that a policy meets."""

from collections import Counter
from random import Random

import pytest

from gimbal.environments.recall import ASKS, KeepingStyles, Recall, Streams, StreamTurns, answer, known
from gimbal.records import Task

LINES = ("kxA2mp\n", "qwzzcc\n", "B7ttrr\n")


def test_a_stream_holds_each_value_once_and_all_lines_are_of_one_length():
    for index in range(50):
        task = Streams(pieces=4, facts=3, seed=2)[index]
        lines = task.columns["lines"]
        assert [len(line) for line in lines] == [7] * 4 and task.prompt == "AB?\n"
        text = "".join(lines)
        assert (text.count("A"), text.count("B")) == (1, 1)
        assert task.answer == text[text.index("A") + 1] + text[text.index("B") + 1]
        assert task.answer[0] in "01234" and task.answer[1] in "56789"
        assert sorted(filter(str.isdigit, text)) == sorted(task.answer)


def test_lines_that_are_shown_stand_in_the_prompt():
    plain, shown = Streams()[3], Streams(shown=2)[3]
    assert shown.prompt == "AB?\n" + "".join(plain.columns["lines"][-2:]) + "="
    assert (shown.answer, shown.id) == (plain.answer, plain.id)


@pytest.mark.parametrize("fields", [{"pieces": 0}, {"facts": 1}, {"shown": 5}, {"shown": -1}])
def test_what_makes_no_stream_is_refused(fields):
    with pytest.raises(ValueError, match="1 or more lines, 2 or more facts a line"):
        Streams(**fields)
    with pytest.raises(IndexError):
        Streams(size=3)[3]


def test_a_task_without_lines_is_refused():
    with pytest.raises(ValueError, match="has no column lines"):
        Recall().open().reset(Task(id="t"), 0)


def test_what_is_known_by_hand():
    assert known(LINES) == ["2", "7"] and known(LINES[:2]) == ["2"] and known(LINES[1:]) == ["7"] and known([]) == []
    assert known(["-7<eos>", "A3mm\n"]) == ["3", "7"], "in the order asked"
    assert answer(LINES, Random(0)) == "27"
    guessed = {answer(LINES[:2], Random(seed)) for seed in range(50)}
    assert guessed == {"25", "26", "27", "28", "29"}


@pytest.mark.parametrize("style", vars(KeepingStyles()))
def test_a_turn_is_one_that_a_policy_meets(style):
    """What is seen follows from the lines by the rule of the style, and what is said from what is seen."""
    turns = StreamTurns(styles=KeepingStyles(**dict.fromkeys(vars(KeepingStyles()), 0.0) | {style: 1.0}), window=28)
    for index in range(200):
        task = turns[index]
        if task.source == "whole":
            assert task.prompt.endswith(ASKS) and len(task.columns["completion"]) == 2
            continue
        seen = task.prompt.removeprefix("AB?\n").split("<eos>")
        said = task.columns["completion"]
        assert len(task.prompt.replace("<eos>", "|")) <= 4 + 28
        if style == "idle":
            assert all(len(line) == 9 for line in seen[:-1]) and len(seen) <= 3
        else:
            assert len(seen) <= 2 and (len(seen) == 1 or seen[0].startswith("-"))
        if seen[-1] == ASKS:
            assert len(said) == 2 and all(value in said for value in known(seen))
        elif style == "careful":
            assert said == "-" + "".join(known(seen))
        else:
            assert said == "" if style == "idle" else set(said[1:]) <= set(known(seen))


def test_styles_share_the_traces():
    sources = Counter(StreamTurns()[index].source for index in range(2000))
    for source, share in {"careful": 0.36, "careless": 0.27, "idle": 0.27, "whole": 0.1}.items():
        assert sources[source] / 2000 == pytest.approx(share, abs=0.04)
    with pytest.raises(ValueError, match="sum to 1"):
        KeepingStyles(careful=0.5)
