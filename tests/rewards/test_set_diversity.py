"""Sets that compete by diversity: distances and credit by hand, the two allocations, and their sums."""

import dataclasses
import math

import pytest
import torch

from gimbal.advantages.estimators.leave_one_out import LeaveOneOut
from gimbal.dataflow.packing import pack
from gimbal.policies.token import Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.exact import ExactAnswer
from gimbal.rewards.scoring import score
from gimbal.rewards.set_diversity import SetDiversity
from gimbal.runtime.local import Trainer

BY_ANSWER = SetDiversity(distance="answer", opening="", closing="")
TEXTS = ("a", "a", "b", "a", "a", "a")  # D = 2/3 and 0


def advantages(group, *rewards):
    return LeaveOneOut()(pack([score(group, rewards)]))[:, 0].double()


def close(a, b):
    torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), atol=1e-6, rtol=1e-6, check_dtype=False)


def test_by_hand(group_of):
    """The odd one out adds 2/3 - 0; each of the two alike 2/3 - 1."""
    gains = torch.tensor([-1 / 3, -1 / 3, 2 / 3])
    z = (gains - gains.mean()) / (gains.std() + 1e-4)
    first = 2 / 3 + 2 / 3 * (3 * z.softmax(0) - 1)
    close(BY_ANSWER(group_of(*TEXTS)), [*first.tolist(), 0, 0, 0])  # all alike: no credit to tell them apart


def test_the_mean_over_a_set_is_its_diversity(group_of):
    texts = ("one", "two", "three", "stone", "one", "", "tone", "one")
    shared = dataclasses.replace(SetDiversity(), credit=False)(group_of(*texts))
    assert shared[0] == shared[3] > shared[4] == shared[7] > 0
    credited = SetDiversity()(group_of(*texts))
    close(sum(credited[:4]) / 4, shared[0])
    close(sum(credited[4:]) / 4, shared[4])
    assert credited[1] > credited[0]  # "two" is like nothing else, "one" is in "stone"


def test_weight_0_reduces_to_leave_one_out(group_of):
    group = group_of("4", "5", "4", "7", "4", "4")
    exact = ExactAnswer(opening="", closing="")
    close(advantages(group, exact, dataclasses.replace(BY_ANSWER, weight=0.0)), advantages(group, exact))


def test_the_sum_of_advantages_is_that_of_the_equation(group_of):
    """Allocation "advantage": (1 - w) leave-one-out of utility + w (max(B, 0) up - max(-B, 0) down)."""
    group = group_of(*TEXTS)
    diverse = dataclasses.replace(BY_ANSWER, allocation="advantage", weight=0.25)
    exact = ExactAnswer(opening="", closing="", weight=0.75)
    z = torch.tensor([-1 / 3, -1 / 3, 2 / 3])
    up = 3 * (z / (z.std() + 1e-4)).softmax(0)
    bracket = torch.cat([2 / 3 * up, -2 / 3 * torch.ones(3)])
    utility = advantages(group, dataclasses.replace(exact, weight=1.0))
    close(advantages(group, exact, diverse), 0.75 * utility + 0.25 * bracket)


def test_without_credit_a_set_shares_its_advantage(group_of):
    broad = dataclasses.replace(BY_ANSWER, allocation="advantage", credit=False, weight=1.0)
    close(advantages(group_of(*TEXTS), broad), torch.tensor([2.0, 2, 2, -2, -2, -2]) / 3)


def test_texts_by_their_triples(group_of):
    values = dataclasses.replace(SetDiversity(), credit=False)(group_of("abcd", "abce", "xy", "xy"))
    close(values, [2 / 3, 2 / 3, 0, 0])


def test_answers_that_are_missing_count_in_no_distance(group_of):
    strict = SetDiversity(distance="answer", credit=False)
    close(strict(group_of("<answer>1</answer>", "none", "<answer>1</answer>", "<answer>2</answer>")), [0, 0, 1, 1])
    assert SetDiversity()(group_of("", "", "", "")) == [0, 0, 0, 0]


def test_finite_at_low_temperature(group_of):
    cold = dataclasses.replace(BY_ANSWER, temperature=1e-3)
    assert all(math.isfinite(x) for x in cold(group_of(*TEXTS)))


def test_errors_say_the_way_out(group_of):
    with pytest.raises(ValueError, match="at least two sets"):
        SetDiversity(sets=1)
    with pytest.raises(ValueError, match="multiple of sets"):
        SetDiversity(sets=2)(group_of("a", "b", "c"))


def test_a_run_by_it_is_not_looked_at_for_noise():
    """Texts alike are credited apart, by the set they are in; that is not the reward's noise."""
    metrics = {}
    for rewards in ((SetDiversity(weight=1.0),), (ExactAnswer(),)):
        run = dataclasses.replace(
            grpo(), rewards=rewards, steps=1, prompts_per_step=2, filters=(), threads=1, held_out=None
        )
        trainer = Trainer(dataclasses.replace(run, sampling=Sampling(max_length=1)))
        metrics[type(rewards[0])] = trainer.advance()[0]
        trainer.close()
    assert "reward/repeats" in metrics[ExactAnswer] and "reward/repeats" not in metrics[SetDiversity]
