"""Flawed successes: the sign rule, its two ends, and whom the judge is asked about; the reward of a judge in training."""

from dataclasses import dataclass, replace

import pytest
import torch

from gimbal.advantages.estimators.group_centered import GroupCentered
from gimbal.dataflow.packing import pack
from gimbal.records import Drop
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.error_place import ErrorPlace
from gimbal.rewards.exact import ExactAnswer
from gimbal.rewards.flaw_penalty import FlawPenalty
from gimbal.rewards.scoring import score
from gimbal.rewards.working_steps import WorkingSteps

SOUND, FLAWED, WRONG = "<think>2+2=4</think><answer>4</answer>", "<answer>4</answer>", "<answer>5</answer>"
OUTCOME = ExactAnswer(weight=2.0)  # 2 or 0: 1 or -1 but for a constant
PENALTY = FlawPenalty(outcome=ExactAnswer(), judge=WorkingSteps(measure="flawed"))


def advantages(group, *rewards):
    scored = score(group, rewards)
    assert not isinstance(scored, Drop)
    return GroupCentered()(pack([scored]))[:, -1].tolist()


def test_by_hand(group_of):
    group = group_of(SOUND, FLAWED, WRONG)
    assert PENALTY(group) == [0, 1, 0]
    assert score(group, (OUTCOME, PENALTY)).score_G.tolist() == [2, 1, 0]


@pytest.mark.parametrize(("a", "f", "w"), [(1, 2, 5), (3, 2, 3), (5, 2, 1)])
@pytest.mark.parametrize("strength", [0.5, 1.0, 2.0])
def test_a_flawed_success_turns_bad_when_sound_ones_outnumber_wrong_ones(group_of, a, f, w, strength):
    group = group_of(*[SOUND] * a, *[FLAWED] * f, *[WRONG] * w)
    n = a + f + w
    flawed = advantages(group, OUTCOME, replace(PENALTY, weight=-strength))[a]
    assert flawed == pytest.approx((1 - strength) - (a + (1 - strength) * f - w) / n, abs=1e-6)
    if strength == 1:
        assert flawed == pytest.approx((w - a) / n, abs=1e-6)


def test_reduces_to_the_outcome_without_weight_or_without_flaws(group_of):
    mixed, pure = group_of(SOUND, FLAWED, WRONG), group_of(SOUND, SOUND, WRONG)
    assert advantages(mixed, OUTCOME, replace(PENALTY, weight=0.0)) == advantages(mixed, OUTCOME)
    assert advantages(pure, OUTCOME, PENALTY) == advantages(pure, OUTCOME)


def test_reduces_to_flawed_counted_as_wrong_at_weight_2(group_of):
    group = group_of(SOUND, FLAWED, WRONG)
    assert score(group, (OUTCOME, replace(PENALTY, weight=-2.0))).score_G.tolist() == [2, 0, 0]


@dataclass(frozen=True, kw_only=True)
class Strict(AbstractReward):
    """A judge that must not be asked about wrong answers."""

    name: str = "strict"

    def __call__(self, group):
        assert all(rollout.text != WRONG for rollout in group.rollouts)
        return [0.25] * len(group.rollouts)


def test_the_judge_is_asked_about_right_answers_only(group_of):
    assert replace(PENALTY, judge=Strict())(group_of(WRONG, FLAWED, WRONG, SOUND)) == [0, 0.25, 0, 0.25]
    assert replace(PENALTY, judge=Strict())(group_of(WRONG, WRONG)) == [0, 0]


def test_a_flaw_is_not_paid_for():
    with pytest.raises(ValueError, match="0 or below"):
        FlawPenalty(weight=1.0)


@pytest.mark.parametrize(
    ("said", "true", "reward"),
    [
        ("3", 3, 1),
        ("1", 3, 0.5),
        ("3", 1, 0.5),
        ("-1", -1, 1),
        ("-1", 2, -1),
        ("2", -1, -1),
        ("two", 2, -1),
        ("-2", 2, -1),
    ],
)
def test_a_judge_is_paid_for_nearness(group_of, said, true, reward):
    group = group_of(f"<answer>{said}</answer>", "no answer", columns={"error": true, "steps": 4})
    assert ErrorPlace()(group) == [reward, -1]


def test_tasks_without_labels_are_not_judged(group_of):
    assert ErrorPlace()(group_of("<answer>1</answer>")) == [None]
    assert torch.isfinite(torch.tensor(ErrorPlace()(group_of("", columns={"error": 0, "steps": 0})))).all()


def test_a_place_too_far_for_a_float_is_wrong(group_of):
    group = group_of(*(f"<answer>{'9' * n}</answer>" for n in (400, 5000)), columns={"error": 1, "steps": 3})
    assert ErrorPlace()(group) == [-1, -1]
