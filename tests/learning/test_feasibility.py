"""FISOR against sums taken here, its limiting cases, and what the sign of the constraint does."""

import math
from dataclasses import replace

import pytest
import torch
from torch.distributions import Normal

from gimbal.advantages.reward_shaping.priced_cost import COST_AFTER
from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.recorded import COST_HERE
from gimbal.dataflow.replay.transitions import MOVE
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.behavior_cloning import BehaviorCloning
from gimbal.learning.updates.feasibility import FeasibilityGuided
from gimbal.learning.updates.implicit_q import ImplicitQ
from gimbal.policies.control import Steps
from gimbal.policies.gaussian import Gaussian
from gimbal.records import TrainBatch

K = 12
PLAIN = Optimization(learning_rate=0.01, critic_learning_rate=0.01, beta1=0.0, beta2=0.0, max_grad_norm=math.inf)
SIZES = {"observations": 3, "actions": 2, "hidden": (8,)}
UPDATE = FeasibilityGuided(critic=ActionValues(**SIZES), gamma=0.9, violation=4.0, optimization=PLAIN)


def batch_of(costs=True):
    g = torch.Generator().manual_seed(0)
    steps = Steps(
        observation_NSO=torch.randn(K, 1, 3, generator=g),
        action_NSA=torch.randn(K, 1, 2, generator=g),
        final_NO=torch.randn(K, 3, generator=g),
        length_N=torch.ones(K, dtype=torch.long),
        terminated_N=torch.arange(K) % 3 == 0,
    )
    here, after = (torch.rand(K, 1, generator=g).round() * costs for _ in range(2))
    return TrainBatch(
        mask_NS=torch.ones(K, 1, dtype=torch.bool),
        reward_NS=torch.randn(K, 1, generator=g),
        decisions=steps,
        facts={MOVE: torch.ones(K, dtype=torch.long), COST_HERE: here, COST_AFTER: after},
    )


def learner(update=UPDATE):
    made = Learner(Gaussian(**SIZES, log_std=-0.3).load(1), update, seed=0)
    with torch.no_grad():  # targets that are not what they follow
        for name in made.models.modules:
            for weight in made.models[name].parameters() if name.endswith("target") else ():
                weight.add_(0.1)
    return made


def losses(made, batch):
    rows = made.update.survey(made.models, made.prepare(batch))[0]
    return {loss.of[0]: loss for loss in made.update.losses(made.models, rows)}


def gradient(loss, model):
    return torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)


def tensors(made, batch):
    steps, models = batch.decisions, made.models
    seen, action, after = steps.observation_NSO[:, 0], steps.action_NSA[:, 0], steps.final_NO
    found = {
        "danger": models["danger_target"](seen, action).max(-1).values,
        "worth": models["target"](seen, action).min(-1).values,
        "here": models["danger_value"](seen)[:, 0],
        "value": models["value"](seen)[:, 0],
        "after": models["danger_value"](after)[:, 0],
    }
    return seen, action, {name: x.detach() for name, x in found.items()}


def test_the_values_are_their_equations():
    made, batch = learner(), batch_of()
    seen, action, found = tensors(made, batch)
    yielded = losses(made, batch)
    apart = found["danger"] - made.models["danger_value"](seen)[:, 0]
    expected = (torch.where(apart < 0, 0.9, 0.1) * apart.square()).mean()  # pulled down harder than up: the best action
    torch.testing.assert_close(yielded["danger_value"].value, expected)
    apart = found["worth"] - made.models["value"](seen)[:, 0]
    torch.testing.assert_close(yielded["value"].value, (torch.where(apart < 0, 0.1, 0.9) * apart.square()).mean())
    target = []
    for k in range(K):
        h = 4.0 if batch.facts[COST_HERE][k, 0] > 0 else -1.0
        end = 4.0 if batch.facts[COST_AFTER][k, 0] > 0 else -1.0
        then = end if batch.decisions.terminated_N[k] else float(found["after"][k])
        target.append(0.1 * h + 0.9 * max(h, then))
    q = made.models["danger_critic"](seen, action)
    expected = (q - torch.tensor(target)[:, None]).square().sum(-1).mean()
    torch.testing.assert_close(yielded["danger_critic"].value, expected)


def test_the_policy_is_weighted_by_what_is_feasible():
    made, batch = learner(), batch_of()
    with torch.no_grad():  # so that every case is there: feasible or not, kept or not
        made.models["danger_target"].biases[-1].fill_(0.0)
    seen, action, found = tensors(made, batch)
    weights = []
    above_K = (found["worth"] - found["value"]).tolist()
    for here, danger, above in zip(found["here"].tolist(), found["danger"].tolist(), above_K, strict=True):
        if here <= 0:
            weights.append(min(math.exp(3 * above), 100) if danger <= 0 else 0.0)
        else:
            weights.append(min(math.exp(5 * (here - danger)), 150))
    logprob = Normal(made.policy.mean(seen), made.policy.log_std_A.exp()).log_prob(action).sum(-1)
    expected = -(torch.tensor(weights) * logprob).mean()
    found = losses(made, batch)["policy"]
    torch.testing.assert_close(found.value, expected)
    torch.testing.assert_close(gradient(found.value, made.policy), gradient(expected, made.policy))


def test_each_case_has_its_weight():
    here, danger, above = (
        torch.tensor(x) for x in ([-0.5, -0.5, 0.5, 0.5, -1.0], [-0.5, 0.5, 0.4, 0.9, -1.0], [0.1] * 4 + [9.0])
    )
    counts, shares = UPDATE.weights(here, danger, above)
    expected = [math.exp(0.3), 0.0, math.exp(0.5), math.exp(-2.0), 100.0]
    torch.testing.assert_close(counts, torch.tensor(expected))
    assert shares["feasible/share"].tolist() == [1, 1, 0, 0, 1] and shares["feasible/kept"].tolist() == [1, 0, 0, 0, 1]
    assert shares["weight/clipped"].tolist() == [0, 0, 0, 0, 1]


def constant(model, value):
    """A network that answers this, whatever it reads."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        last = list(model.parameters())[-1]
        last.fill_(value)


def test_without_costs_it_is_implicit_q():
    """V_h is -1 everywhere, which is a fixed point, and the policy's loss is that of IQL."""
    batch, made = batch_of(costs=False), learner()
    for name in ("danger_value", "danger_critic", "danger_target"):
        constant(made.models[name], -1.0)
    other = learner(ImplicitQ(critic=UPDATE.critic, gamma=0.9, expectile=0.9, beta=3.0, optimization=PLAIN))
    for name in ("policy", "value", "critic", "target"):
        other.models[name].load_state_dict(made.models[name].state_dict())
    own, theirs = losses(made, batch), losses(other, batch)
    for name in ("policy", "value", "critic"):
        assert torch.equal(own[name].value, theirs[name].value), name
    assert own["danger_value"].value == 0 and own["danger_critic"].value.item() < 1e-12
    assert own["policy"].metrics["feasible/kept"] == pytest.approx(1.0)


def test_without_beta_and_escape_it_is_behavior_cloning_of_the_steps_that_are_kept():
    batch, made = batch_of(), learner(replace(UPDATE, beta=0.0, escape=0.0))
    constant(made.models["danger_value"], -1.0)
    with torch.no_grad():  # half of them are kept
        made.models["danger_target"].biases[-1].sub_(tensors(made, batch)[2]["danger"].median())
    found = tensors(made, batch)[2]
    kept = (found["danger"] <= 0).nonzero()[:, 0]
    assert 0 < len(kept) < K
    cloned = losses(learner(BehaviorCloning(optimization=PLAIN)), batch.select(kept))["policy"].value
    torch.testing.assert_close(losses(made, batch)["policy"].value, cloned * len(kept) / K)


def test_at_an_expectile_of_a_half_danger_is_the_mean():
    made, batch = learner(replace(UPDATE, safe_expectile=0.5)), batch_of()
    seen, _, found = tensors(made, batch)
    expected = 0.5 * (found["danger"] - made.models["danger_value"](seen)[:, 0]).square().mean()
    torch.testing.assert_close(losses(made, batch)["danger_value"].value, expected)


@pytest.mark.slow
@pytest.mark.parametrize(("safe_expectile", "feasible"), [(0.9, True), (0.1, False)])
def test_a_state_with_one_safe_action_of_two_is_feasible(safe_expectile, feasible):
    """The reversed expectile is the better action's; turned around it is the worse one's."""
    steps = Steps(
        observation_NSO=torch.zeros(2, 1, 3),
        action_NSA=torch.tensor([[[0.5, 0.0]], [[-0.5, 0.0]]]),
        final_NO=torch.zeros(2, 3),
        length_N=torch.ones(2, dtype=torch.long),
        terminated_N=torch.tensor([True, True]),
    )
    facts = {
        MOVE: torch.ones(2, dtype=torch.long),
        COST_HERE: torch.zeros(2, 1),
        COST_AFTER: torch.tensor([[0.0], [1.0]]),
    }
    batch = TrainBatch(
        mask_NS=torch.ones(2, 1, dtype=torch.bool), reward_NS=torch.zeros(2, 1), decisions=steps, facts=facts
    )
    made = Learner(
        Gaussian(**SIZES).load(1),
        replace(UPDATE, safe_expectile=safe_expectile, tau=0.1, optimization=Optimization(), violation=1.5),
        seed=0,
    )
    for _ in range(300):
        made.step(made.prepare(batch))
    assert (made.models["danger_value"](torch.zeros(1, 3)).item() <= 0) == feasible


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1, -1])
def test_with_the_sign_of_the_constraint_turned_around_the_policy_violates(sign):
    """One state, two actions: the one that earns violates. What is turned around keeps that one."""
    steps = Steps(
        observation_NSO=torch.zeros(2, 1, 3),
        action_NSA=torch.tensor([[[0.5, 0.0]], [[-0.5, 0.0]]]),
        final_NO=torch.zeros(2, 3),
        length_N=torch.ones(2, dtype=torch.long),
        terminated_N=torch.tensor([True, True]),
    )
    after = torch.tensor([[0.0], [1.0]]) if sign > 0 else torch.tensor([[1.0], [0.0]])
    facts = {MOVE: torch.ones(2, dtype=torch.long), COST_HERE: torch.zeros(2, 1), COST_AFTER: after}
    reward = torch.tensor([[0.0], [1.0]])
    batch = TrainBatch(mask_NS=torch.ones(2, 1, dtype=torch.bool), reward_NS=reward, decisions=steps, facts=facts)
    made = Learner(
        Gaussian(**SIZES).load(1), replace(UPDATE, tau=0.1, violation=1.5, optimization=Optimization()), seed=0
    )
    for _ in range(500):
        made.step(made.prepare(batch))
    assert sign * made.policy.mean(torch.zeros(1, 3))[0, 0].item() > 0.2


def test_settings_that_make_no_sense_are_refused():
    for wrong in ({"expectile": 1.0}, {"safe_expectile": 0.0}, {"violation": 0.0}, {"beta": -1.0}, {"most": math.inf}):
        with pytest.raises(ValueError, match="FeasibilityGuided has"):
            replace(UPDATE, **wrong)
