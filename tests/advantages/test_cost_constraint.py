"""A price on cost: by hand, its limits, and that its policy gradient is that of the upper bound."""

import dataclasses
import math

import pytest
import torch

from gimbal.advantages.estimators.leave_one_out import LeaveOneOut
from gimbal.advantages.reward_shaping.cost_constraint import CostConstraint
from gimbal.controllers.lagrangian import Lagrangian
from gimbal.ops.confidence import student_width
from gimbal.records import TrainBatch

PLAIN = {"inflation": 0.0, "own": 0.0}


def batch(reward, cost):
    """One or two counted decisions a row; two groups."""
    n = len(reward)
    mask_NS = torch.ones(n, 3, dtype=torch.bool)
    mask_NS[:, 2] = False
    mask_NS[1:, 1] = False
    last_N = mask_NS[:, 1].long()
    reward_NS = torch.zeros(n, 3, dtype=torch.float64)
    reward_NS[torch.arange(n), last_N] = torch.tensor(reward, dtype=torch.float64)
    facts = {"score/harm": torch.tensor(cost, dtype=torch.float64), "truncated": torch.zeros(n)}
    return TrainBatch(mask_NS=mask_NS, reward_NS=reward_NS, group_N=torch.arange(n) // 2, facts=facts)


def close(a, b):
    torch.testing.assert_close(a, torch.as_tensor(b, dtype=a.dtype), atol=1e-6, rtol=1e-6)


def test_by_hand():
    # Costs 0 0 1 1: mean 1/2, s = sqrt(1/3); C^2 - 2 m C = C^2 - C = 0 for both, so C' = C.
    b = batch([1.0, 0, 2, 0], [0.0, 0, 1, 1])
    part = CostConstraint(cost="score/harm", multiplier=3.0, tests=5, delta=0.1)
    k = (1.533206274 + 0.0) / 5**0.5 + 1.637744354 / 4**0.5
    assert part.report(b) == pytest.approx({"cost/mean": 0.5, "cost/upper": 0.5 + k / 3**0.5})
    close(part(b).sum(-1), [0.25, 0, (2 - 3) / 4, -0.75])
    # Costs 0 1 2 5: mean 2, s = sqrt(14/3).
    b = batch([0.0] * 4, [0.0, 1, 2, 5])
    half = k / 2 / (14 / 3) ** 0.5
    expected = [0, 1 + half * (1 - 4), 2 + half * (4 - 8), 5 + half * (25 - 20)]
    close(dataclasses.replace(part, normalise=False)(b).sum(-1), [-3 * x for x in expected])


def test_the_price_sits_on_the_last_decision_and_dense_rewards_stay():
    b = batch([1.0, 0, 2, 0], [0.0, 0, 1, 1])
    b.reward_NS[:, 0] += 0.5
    result_NS = CostConstraint(cost="score/harm", multiplier=1.0)(b)
    close(result_NS[:, 0], [0.25, 0.25, (2.5 - 1) / 2, (0.5 - 1) / 2])
    assert (result_NS[~b.mask_NS] == 0).all()


def test_reduces_to_the_rewards_at_multiplier_0_which_an_infinite_limit_holds():
    b = batch([1.0, 0, 2, 0], [0.0, 3, 1, 1])
    part = CostConstraint(cost="score/harm", multiplier=0.0)
    assert torch.equal(part(b), b.reward_NS)
    rule = Lagrangian(signal="cost/upper", limit=math.inf, initial=1.0)
    assert rule.update(rule.init(), part.report(b))["value"] == 0


def test_reduces_to_the_plain_mean_constraint_without_inflation():
    b = batch([1.0, 0, 2, 0], [0.0, 3, 1, 5])
    part = CostConstraint(cost="score/harm", multiplier=2.0, **PLAIN)
    assert part.report(b)["cost/upper"] == part.report(b)["cost/mean"] == pytest.approx(2.25)
    reward_N, cost_N = b.return_N, b.facts["score/harm"]
    close(part(b).sum(-1), (reward_N - 2 * cost_N) / 3)
    # Linear, so the advantages are those of Safe RLHF: each estimated by itself, then combined.
    estimate = LeaveOneOut()
    priced = estimate(dataclasses.replace(b, reward_NS=part(b)))
    spread = [dataclasses.replace(b, reward_NS=x[:, None] * torch.tensor([1.0, 0, 0])) for x in (reward_N, cost_N)]
    rewarding, costly = (estimate(each) for each in spread)
    close(priced, (rewarding - 2 * costly) / 3)


def test_its_policy_gradient_is_that_of_the_upper_bound():
    """Every arm drawn equally often from a uniform policy; ddof 1 in the measured s is the only difference from the population."""
    copies, cost = 3, torch.tensor([0.0, 0.5, 1.0, 4.0], dtype=torch.float64)
    logits = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    p = logits.softmax(-1)
    part = CostConstraint(cost="score/harm", multiplier=1.0, normalise=False, tests=20)
    n = 4 * copies
    k = student_width(20, 0.1) + student_width(n, 0.1)
    mean = (p * cost).sum()
    std = ((p * cost.square()).sum() - mean.square()).sqrt()
    exact = torch.autograd.grad(-(mean + k * ((n - 1) / n) ** 0.5 * std), logits, retain_graph=True)[0]
    arm_N = torch.arange(4).repeat(copies)
    reward_N = part(batch([0.0] * n, cost[arm_N].tolist())).sum(-1)
    found = torch.autograd.grad((logits.log_softmax(-1)[arm_N] * reward_N).mean(), logits)[0]
    close(found, exact)


def test_equal_costs_change_no_comparison():
    b = batch([1.0, 0, 2, 0], [0.3] * 4)
    part = CostConstraint(cost="score/harm", multiplier=2.0, normalise=False)
    assert part.report(b)["cost/upper"] == pytest.approx(0.3)
    close(LeaveOneOut()(dataclasses.replace(b, reward_NS=part(b))), LeaveOneOut()(b))
    assert math.isfinite(part.report(batch([1.0], [7.0]))["cost/upper"])


def test_rows_without_decisions_are_not_measured():
    b, spoilt = batch([1.0, 0, 2], [0.0, 3, 1]), batch([1.0, 0, 2, 9], [0.0, 3, 1, float("nan")])
    spoilt.mask_NS[3] = False
    part = CostConstraint(cost="score/harm")
    assert part.report(b) == pytest.approx(part.report(spoilt))
    close(part(spoilt)[:3], part(b))


def test_a_cost_that_nobody_measures_is_an_error_that_names_the_reader():
    with pytest.raises(ValueError, match="CostConstraint reads score/harmless"):
        CostConstraint(cost="score/harmless")(batch([1.0], [0.0]))


def test_senseless_numbers_are_refused():
    with pytest.raises(ValueError, match="between 0 and 1"):
        CostConstraint(delta=1.0)
    with pytest.raises(ValueError, match="pay for cost"):
        CostConstraint(multiplier=-1.0)
