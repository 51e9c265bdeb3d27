"""Comparisons by a judge: in both orders, ties, silence, and what becomes of a bias for the first place."""

from dataclasses import replace

import pytest

from gimbal.records import Drop
from gimbal.rewards.by_judge import ByJudge
from gimbal.rewards.exact import ExactAnswer
from gimbal.rewards.judge import JudgeScore
from gimbal.rewards.scoring import score
from gimbal.rewards.win_rate import WinRate

pytestmark = pytest.mark.filterwarnings("ignore:.*gave no verdict")


def by(judge):
    return ByJudge(judge=replace(ByJudge().judge, judge=judge, template="{first}>{second}"))


def longer(question):
    first, second = question.split(">")
    return f"Better: {'first' if len(first) > len(second) else 'second'}"


def test_by_hand(group_of):
    asked = []

    def judge(question):
        asked.append(question)
        return longer(question)

    group = group_of("aaa", "a", "aa", "a")
    assert by(judge)(group) == [[0.5, 1, 1, 1], [0, 0.5, 0, 0.5], [0, 1, 0.5, 1], [0, 0.5, 0, 0.5]]
    assert len(asked) == 6  # three different texts
    assert WinRate(preference=by(longer))(group) == pytest.approx([1, 1 / 6, 2 / 3, 1 / 6])


def test_a_liking_for_the_first_place_cancels(group_of):
    biased = by(lambda question: "Better: first")
    assert biased(group_of("a", "b", "c")) == [[0.5] * 3] * 3
    half = by(lambda question: "Better: tie" if question == "b>a" else longer(question + "!"))
    assert half(group_of("aaa", "b"))[0][1] == 1


def test_a_pair_without_a_verdict_is_not_compared(group_of):
    mute = by(lambda question: "?" if question == "a>b" else "Better: second")
    assert mute(group_of("a", "b", "c")) == [[0.5, None, 0.5], [None, 0.5, 0.5], [0.5, 0.5, 0.5]]
    silent = WinRate(preference=by(lambda question: 1 / 0))
    assert score(group_of("a", "b"), (ExactAnswer(), silent)) == Drop("judge_failed")
    aside = by(lambda question: None)
    assert WinRate(preference=aside)(group_of("a", "b")) == [None, None]


def test_a_template_compares_two():
    with pytest.raises(ValueError, match=r"needs \{first\}"):
        ByJudge(judge=JudgeScore())
