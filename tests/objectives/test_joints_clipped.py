"""A clip for each group of joints: against sums taken here, its limiting cases, its gradient, and in a run of PPO."""

import math
from dataclasses import replace

import pytest
import torch

from gimbal import recipes
from gimbal.objectives import ClippedRatio
from gimbal.objectives.surrogates.joints_clipped import EACH, EACH_BEFORE, JointsClipped
from gimbal.policies.control import Steps
from gimbal.policies.gaussian import Gaussian
from gimbal.records import TrainBatch
from gimbal.runtime import compose
from gimbal.runtime.local import Trainer

N, S, A = 3, 4, 5
MASK = torch.ones(N, S, dtype=torch.bool)
MASK[1, 2:] = False
GROUPS = ((0, 3), (1,), (4, 2))


def batch_of(spread=0.3, seed=0):
    g = torch.Generator().manual_seed(seed)
    before = torch.randn(N, S, A, generator=g, dtype=torch.float64)
    now = (before + spread * torch.randn(N, S, A, generator=g, dtype=torch.float64)).requires_grad_()
    advantage = torch.randn(N, S, generator=g, dtype=torch.float64)
    facts = {EACH: now, EACH_BEFORE: before}
    batch = TrainBatch(mask_NS=MASK, advantage_NS=advantage, facts=facts, live=frozenset({EACH}))
    return now, before, replace(batch, proximal_NS=before.sum(-1))


def test_it_is_the_mean_of_the_clipped_surrogates_of_its_groups():
    now, before, batch = batch_of()
    found = JointsClipped(groups=GROUPS, clip_low=0.1, clip_high=0.3)(now.sum(-1), batch)
    for n, s in MASK.nonzero().tolist():
        a, total, low, high = float(batch.advantage_NS[n, s]), 0.0, 0, 0
        for group in GROUPS:
            r = math.exp(sum((now - before)[n, s, list(group)].tolist()))
            total -= min(r * a, min(max(r, 0.9), 1.3) * a) / 3
            low, high = low + (a < 0 and r < 0.9), high + (a > 0 and r > 1.3)
        assert float(found.loss_NS[n, s]) == pytest.approx(total)
        assert float(found.metrics["clip_ratio/low"][n, s]) == pytest.approx(low / 3)
        assert float(found.metrics["clip_ratio/high"][n, s]) == pytest.approx(high / 3)
        joint = math.exp(float((now - before)[n, s].sum()))
        assert float(found.metrics["clip_ratio/joint"][n, s]) == float(joint > 1.3 if a > 0 else joint < 0.9)
    assert not found.loss_NS[~MASK].any()


def test_one_group_is_clipped_ratio():
    now, _, batch = batch_of()
    bounds = {"clip_low": 0.15, "clip_high": 0.25}
    one = JointsClipped(groups=(tuple(range(A)),), **bounds)(now.sum(-1), batch)
    other = ClippedRatio(**bounds)(now.sum(-1), batch)
    torch.testing.assert_close(one.loss_NS, other.loss_NS)
    for name in other.metrics:
        torch.testing.assert_close(one.metrics[name], other.metrics[name])
    gradients = [torch.autograd.grad(terms.loss_NS.sum(), now, retain_graph=True)[0] for terms in (one, other)]
    torch.testing.assert_close(*gradients)


def test_no_groups_are_each_number_by_itself():
    now, _, batch = batch_of()
    one, other = (JointsClipped(groups=groups)(now.sum(-1), batch) for groups in ((), tuple((j,) for j in range(A))))
    assert torch.equal(one.loss_NS, other.loss_NS)


def test_without_clips_and_at_the_anchor():
    now, before, batch = batch_of()
    free = JointsClipped(groups=GROUPS, clip_low=math.inf, clip_high=math.inf)(now.sum(-1), batch)
    ratio = torch.stack([(now - before)[..., list(group)].sum(-1).exp() for group in GROUPS]).mean(0)
    torch.testing.assert_close(free.loss_NS, torch.where(MASK, -ratio * batch.advantage_NS, 0))
    now, before, batch = batch_of(spread=0.0)
    (gradient,) = torch.autograd.grad(JointsClipped(groups=GROUPS)(now.sum(-1), batch).loss_NS.sum(), now)
    torch.testing.assert_close(gradient, (-batch.advantage_NS / 3 * MASK)[..., None].expand(N, S, A))


def test_its_gradient_is_that_of_finite_differences_and_a_group_stops_alone():
    now, before, batch = batch_of(seed=3)
    rule = JointsClipped(groups=GROUPS)

    def loss(x):
        return rule(x.sum(-1), replace(batch, facts={**batch.facts, EACH: x})).loss_NS.sum()

    (gradient,) = torch.autograd.grad(loss(now), now)
    for place in ((0, 0, 0), (0, 1, 2), (2, 3, 4), (1, 1, 1)):
        step = torch.zeros_like(now)
        step[place] = 1e-6
        assert (float(loss(now + step)) - float(loss(now - step))) / 2e-6 == pytest.approx(
            float(gradient[place]), abs=1e-6
        )
    shift = torch.zeros(N, S, A, dtype=torch.float64)
    shift[..., 1] = 1.0  # the second group has gone far; the others are at the anchor
    x = (before + shift).requires_grad_()
    (gradient,) = torch.autograd.grad(loss(x), x)
    up = MASK & (batch.advantage_NS > 0)
    assert not gradient[up][:, 1].any() and gradient[up][:, [0, 2, 3, 4]].all()


def test_the_policy_says_each_number_and_they_add_up():
    policy = Gaussian(observations=3, actions=A, log_std=-0.5).load(1)
    g = torch.Generator().manual_seed(2)
    steps = Steps(
        observation_NSO=torch.randn(N, S, 3, generator=g),
        action_NSA=torch.randn(N, S, A, generator=g),
        final_NO=torch.randn(N, 3, generator=g),
        length_N=torch.tensor([4, 2, 4]),
        terminated_N=torch.zeros(N, dtype=torch.bool),
    )
    found = policy.evaluate(steps, temperature=0.7, columns=("logprob_NSA",))
    assert set(found.columns) == {"logprob_NSA"}
    torch.testing.assert_close(found.columns["logprob_NSA"].sum(-1), found.logprob_NS)
    assert not found.columns["logprob_NSA"][1, 2:].any()


def run_of(objective):
    run = replace(recipes.load("pendulum"), steps=2, held_out=None, prompts_per_step=4)
    return replace(run, objective=objective, optimization=replace(run.optimization, epochs=2, minibatches=2))


def test_in_a_run_with_one_number_it_trains_as_clipped_ratio_does():
    found = []
    for objective in (JointsClipped(), ClippedRatio()):
        trainer = Trainer(run_of(objective))
        trainer.begin()
        told = [trainer.advance()[0] for _ in range(2)]
        found.append((told, {name: x.clone() for name, x in trainer.learner.policy.state_dict().items()}))
        trainer.close()
    (one, mine), (other, theirs) = found
    for name in ("loss", "clip_ratio/low", "live_frac", "kl/old"):
        assert one[1][name] == pytest.approx(other[1][name], rel=1e-3, abs=1e-6), name
    for name in mine:
        torch.testing.assert_close(mine[name], theirs[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("groups", [((0,), (0, 1)), ((0, 2),), ((-1, 0),), ((), (0,))])
def test_groups_that_do_not_part_an_action_are_refused(groups):
    with pytest.raises(ValueError, match="each place of an action's numbers, from 0 on, is in one group"):
        JointsClipped(groups=groups)


def test_groups_of_another_size_are_refused():
    now, _, batch = batch_of()
    with pytest.raises(ValueError, match="has 2 places, and an action has 5 numbers"):
        JointsClipped(groups=((0,), (1,)))(now.sum(-1), batch)
    with pytest.raises(ValueError, match=r"has 2 places, and an action has 1 numbers.*objective\.groups=\(\)"):
        compose.check(run_of(JointsClipped(groups=((0,), (1,)))))
