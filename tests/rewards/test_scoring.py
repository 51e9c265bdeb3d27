from dataclasses import dataclass

import pytest

from gimbal.records import Drop, Group
from gimbal.report.metrics import passed
from gimbal.rewards.answers import extract
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.exact import ExactAnswer
from gimbal.rewards.scoring import Broken, score


@dataclass(frozen=True, kw_only=True)
class Given(AbstractReward):
    values: tuple
    name: str = "given"

    def __call__(self, group):
        return list(self.values)


def test_score_is_the_weighted_sum_and_scores_are_unweighted(group_of):
    rewards = [Given(values=(1.0, 0.5), weight=2.0), Given(values=(3.0, 4.0), name="other", weight=-0.5)]
    scored = score(group_of("a", "b"), rewards)
    assert [r.score for r in scored.rollouts] == [0.5, -1.0]
    assert dict(scored.rollouts[1].scores) == {"given": 0.5, "other": 4.0, "error": 0.0}


def test_without_rewards_the_group_passes(group_of):
    group = group_of("a")
    assert score(group, []) is group
    assert group.rollouts[0].earned == 0.0


def test_none_is_left_out_of_sum_and_scores(group_of):
    scored = score(group_of("a", "b"), [Given(values=(1.0, None)), Given(values=(1.0, 1.0), name="other")])
    assert [r.score for r in scored.rollouts] == [2.0, 1.0]
    assert "given" not in scored.rollouts[1].scores
    assert [passed(r) for r in scored.rollouts] == [True, True]  # where the first gives none, the next decides


def test_an_unscored_rollout_leaves_and_an_unscored_group_drops(group_of):
    scored = score(group_of("a", "b"), [Given(values=(None, 0.0))])
    assert isinstance(scored, Group) and [r.text for r in scored.rollouts] == ["b"]
    assert score(group_of("a", "b"), [Given(values=(None, None))]) == Drop("unscored")


def test_broken_counts_as_0_and_as_error(group_of):
    scored = score(group_of("a", "b"), [Given(values=(Broken(), 1.0))])
    assert [(r.score, r.scores["error"]) for r in scored.rollouts] == [(0.0, 1.0), (1.0, 0.0)]


@pytest.mark.parametrize("names", [("a", "a"), ("error",)])
def test_names_are_unique(group_of, names):
    with pytest.raises(ValueError, match="needs a unique name"):
        score(group_of("x"), [Given(values=(1.0,), name=name) for name in names])


def test_exact_answer(group_of):
    right, wrong = "<answer> 4 </answer>", "<answer>4.0</answer>"
    assert ExactAnswer()(group_of(right, wrong, "4", answer="4 ")) == [1.0, 0.0, 0.0]
    assert ExactAnswer(opening="", closing="")(group_of(" 4\n", "44")) == [1.0, 0.0]
    assert ExactAnswer()(group_of(right, answer=None)) == [None]


@pytest.mark.parametrize(
    ("text", "opening", "closing", "expected"),
    [
        ("<a>1</a> <a>2</a>", "<a>", "</a>", "2"),
        ("<a>1</a> <a>2", "<a>", "</a>", None),
        ("1</a>", "<a>", "</a>", None),
        ("x=1=2", "=", "", "2"),
        ("12;3", "", ";", "12"),
        ("<a></a>", "<a>", "</a>", ""),
    ],
)
def test_extract(text, opening, closing, expected):
    assert extract(text, opening, closing) == expected
