"""Items of all tasks, items of one task, and a judge that is asked about each."""

import math

import pytest

from gimbal.rewards.checklist import Checklist
from gimbal.rewards.exact import ExactAnswer
from gimbal.rewards.judge import JudgeScore
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.scoring import score
from gimbal.rewards.working_steps import WorkingSteps

SOUND, GUESS, WRONG = (
    "<think>2+2=4</think><answer>4</answer>",
    "<answer>4</answer>",
    "<think>2+2=5</think><answer>5</answer>",
)
ITEMS = (ExactAnswer(), Pattern(), WorkingSteps(measure="right"))


def test_by_hand(group_of):
    assert Checklist(items=ITEMS)(group_of(SOUND, GUESS, WRONG)) == [1, 1 / 3, 1 / 3]


def test_a_task_brings_its_own_items(group_of):
    group = group_of(SOUND, GUESS, WRONG, columns={"checklist": [r"2\+2", "=4", "4"]})
    assert Checklist()(group) == [1, 1 / 3, 1 / 3]
    assert Checklist(items=ITEMS[:1])(group) == [1, 0.5, 0.25]


def test_reduces_to_the_verdict_of_a_single_item(group_of):
    group = group_of(SOUND, GUESS, WRONG)
    for item in ITEMS:
        assert Checklist(items=(item,))(group) == [float(value >= 0.5) for value in item(group)]


def test_nothing_to_check_does_not_apply(group_of):
    assert Checklist()(group_of(SOUND)) == [None]
    assert Checklist(items=(ExactAnswer(),))(group_of(SOUND, answer=None)) == [None]


def test_a_judge_is_asked_each_question(group_of):
    asked = []

    def judge(question):
        asked.append(question)
        what, text = question.split("|")
        return float(what in text)

    list_ = Checklist(judge=JudgeScore(judge=judge, template="{item}|{completion}", low=0.0, high=1.0), threshold=1.0)
    group = group_of(SOUND, WRONG, columns={"checklist": ["think", "=4"]})
    assert list_(group) == [1, 0.5]
    assert sorted(asked) == sorted(f"{item}|{text}" for item in ("think", "=4") for text in (SOUND, WRONG))


def test_a_verdict_that_is_owed_is_not_made_up(group_of):
    judge = JudgeScore(judge=lambda q: "no idea" if "5" in q else "Score: 10", template="{item} {completion}")
    group = group_of(SOUND, WRONG, columns={"checklist": ["a", "b"]})
    values = Checklist(judge=judge)(group)
    assert values[0] == 1 and math.isnan(values[1])
    assert len(score(group, (Checklist(judge=judge),)).rollouts) == 1


def test_items_are_opened_and_closed(group_of, opened):
    live = opened(Checklist(items=(*ITEMS, Checklist(items=ITEMS[:1], name="inner"))))
    assert live(group_of(SOUND)) == [1]


def test_a_broken_item_is_named(group_of):
    with pytest.raises(ValueError, match="not a valid regular expression"):
        Checklist()(group_of(SOUND, columns={"checklist": ["("]}))
