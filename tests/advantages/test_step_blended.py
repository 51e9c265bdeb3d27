"""The step's own score beside the rollout's: by hand, and where it vanishes."""

import dataclasses
import math
from dataclasses import replace

import pytest
import torch

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.advantages.shapings.step_blended import StepBlended
from gimbal.records import TrainBatch

MASK = torch.tensor([[True, True, True], [True, False, True], [True, True, False]])
B = TrainBatch(
    mask_NS=MASK,
    advantage_NS=torch.tensor([[2.0], [-1.0], [0.5]], dtype=torch.float64) * MASK,
    reward_NS=torch.tensor([[0.0, 1, 5], [2, 9, 1], [0.5, 0, 0]], dtype=torch.float64),
    turn_NS=torch.tensor([[0, 0, 1]] * 3),
    group_N=torch.tensor([4, 4, 2]),
    facts={"score/right": torch.tensor([1.0, 2.0, 0.0])},
)


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


def test_by_hand():
    q = torch.tensor([1.0, 1, 5, 2, 1], dtype=torch.float64)  # sums of turns, what is masked left out
    z = 0.3 * (q - 2) / math.sqrt(2.4 + 1e-8)
    expected = torch.tensor([[2.0, 2, 2], [-1, 0, -1], [0.5, 0.5, 0]], dtype=torch.float64)
    expected[0] += z[:3]
    expected[1, [0, 2]] += z[3:]
    close(StepBlended()(B), expected)


def test_leading_right_turns_score_1():
    z = StepBlended(scores="score/right", strength=1.0)(B) - B.advantage_NS
    q = torch.tensor([1.0, 1, 0, 1, 1], dtype=torch.float64)
    close(z[:2][MASK[:2]], (q - 0.8) / math.sqrt(0.16 + 1e-8))
    assert (z[2] == 0).all()  # alone, and both of its decisions in a wrong turn


def test_reduces_to_the_advantage_at_strength_0():
    assert torch.equal(replace(StepBlended(), strength=0.0)(B), B.advantage_NS)


def test_reduces_to_the_advantage_where_all_steps_score_the_same():
    reward_NS = torch.tensor([[0.1, 0.2, 0.3]], dtype=torch.float64).expand(3, 3) * 0 + 0.1
    b = dataclasses.replace(B, reward_NS=reward_NS, turn_NS=torch.arange(3).expand(3, 3))
    assert torch.equal(StepBlended()(b), B.advantage_NS)
    host = GroupNormalized(eps=1e-4)(b)
    assert torch.equal(StepBlended()(dataclasses.replace(b, advantage_NS=host)), host)


def test_a_single_decision_keeps_its_advantage():
    lone = dataclasses.replace(
        B, mask_NS=MASK & torch.tensor([[False, True, False], [False] * 3, [True, False, False]])
    )
    close(StepBlended()(lone), B.advantage_NS * lone.mask_NS)


def test_step_scores_sum_to_0_over_the_group():
    change_NS = StepBlended()(B) - B.advantage_NS
    assert change_NS[:2].sum().abs() < 1e-9 and change_NS[2].sum().abs() < 1e-9


def test_unfit_options_are_refused():
    with pytest.raises(ValueError, match="above 0"):
        StepBlended(eps=0.0)
    with pytest.raises(ValueError, match="score/none"):
        StepBlended(scores="score/none")(B)
