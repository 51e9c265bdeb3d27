"""Experts: what is recorded of the routing, and what forcing it restores."""

import copy
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

from gimbal import recipes
from gimbal.ops import philox
from gimbal.policies.control import Steps
from gimbal.policies.mixture import MixtureOfExperts
from gimbal.runtime.local import Trainer

SPEC = MixtureOfExperts(observations=3, actions=4, width=8)


def loud(spec, seed=0):
    """A policy whose distributions differ from one observation to the next."""
    policy = spec.load(seed)
    with torch.no_grad():
        policy.outlet[-1].weight.mul_(100)
    return policy


def drawn(policy, length=200):
    """One row of decisions, as the policy draws them, and their log-probabilities."""
    seen_SO = torch.randn(length + 1, 3, generator=torch.Generator().manual_seed(1))
    action_SA, logprob_S = policy.draw(seen_SO[:-1], policy.noise(philox("noise", 0), length), torch.ones(length))
    decisions = Steps(
        observation_NSO=seen_SO[None, :-1],
        action_NSA=action_SA[None].detach(),
        final_NO=seen_SO[None, -1],
        length_N=torch.tensor([length]),
        terminated_N=torch.tensor([False]),
    )
    return decisions, logprob_S.detach()


def shaken(policy, scale=0.3):
    """The same policy behind a router with noise."""
    other, g = copy.deepcopy(policy), torch.Generator().manual_seed(2)
    with torch.no_grad():
        for layer in other.layers:
            layer.router[0].weight += scale * torch.randn(layer.router[0].weight.shape, generator=g)
    return other


def gap(policy, decisions, logprob_S):
    with torch.no_grad():
        return (policy.evaluate(decisions).logprob_NS[0] - logprob_S).abs()


def test_an_action_is_the_choice_and_the_experts_that_made_it():
    policy = loud(SPEC)
    decisions, logprob_S = drawn(policy)
    routes = decisions.action_NSA[0, :, 1:]
    assert routes.shape == (200, SPEC.layers * SPEC.chosen) and len(routes.unique(dim=0)) > 4
    assert all(len(set(pair)) == 2 for row in routes.tolist() for pair in (row[:2], row[2:]))
    assert gap(policy, decisions, logprob_S).max() < 1e-5


@pytest.mark.parametrize("same", [{"experts": 1, "chosen": 1}, {"experts": 3, "chosen": 3}], ids=["one", "all"])
def test_with_one_expert_or_all_of_them_replay_is_a_no_op(same):
    spec = replace(SPEC, **same)
    policy = loud(spec)
    decisions, _ = drawn(policy)
    moved = [shaken(loud(replace(spec, replay=replay))) for replay in (True, False)]
    first, second = (other.evaluate(decisions).logprob_NS for other in moved)
    torch.testing.assert_close(first, second, atol=1e-6, rtol=0)


def test_with_identical_routing_replay_is_a_no_op():
    decisions, _ = drawn(loud(SPEC))
    first, second = (loud(replace(SPEC, replay=replay)).evaluate(decisions) for replay in (True, False))
    torch.testing.assert_close(first.logprob_NS, second.logprob_NS, atol=1e-6, rtol=0)


def test_replay_takes_the_jumps_out_of_the_mismatch():
    sampler = loud(SPEC)
    decisions, logprob_S = drawn(sampler)
    forced, free = (gap(shaken(loud(replace(SPEC, replay=on))), decisions, logprob_S) for on in (True, False))
    assert forced.mean() < 0.5 * free.mean() and forced.max() < free.max()


def test_recorded_experts_are_followed_and_gates_are_the_trainers():
    policy = loud(replace(SPEC, layers=1))
    decisions, _ = drawn(policy, length=1)
    route = torch.tensor([3, 0])
    decisions = replace(decisions, action_NSA=torch.tensor([[[2, *route.tolist()]]]))
    x = policy.inlet(decisions.observation_NSO[0]).tanh()
    layer = policy.layers[0]
    gate = layer.router(x)[0, route].softmax(-1)
    x = x + gate[0] * layer.experts[3](x) + gate[1] * layer.experts[0](x)
    expected = policy.outlet(x.tanh()).log_softmax(-1)[0, 2]
    torch.testing.assert_close(policy.evaluate(decisions).logprob_NS[0, 0], expected)


def test_gradient_reaches_the_router_and_the_recorded_experts_alone():
    for chosen, learns in ((2, True), (1, False)):
        policy = loud(replace(SPEC, layers=1, chosen=chosen))
        decisions, _ = drawn(policy, length=1)
        recorded = torch.arange(chosen) + 1
        decisions = replace(decisions, action_NSA=torch.tensor([[[2, *recorded.tolist()]]]))
        policy.evaluate(decisions).logprob_NS.sum().backward()
        layer = policy.layers[0]
        reached = [bool(expert[0].weight.grad is not None and expert[0].weight.grad.any()) for expert in layer.experts]
        assert [number for number, yes in enumerate(reached) if yes] == recorded.tolist()
        assert bool(layer.router[0].weight.grad.abs().max() > 1e-9) == learns


def test_it_comes_back_from_disk(tmp_path):
    policy = loud(SPEC)
    policy.save(tmp_path)
    decisions, _ = drawn(policy)
    again = SPEC.at(tmp_path).load()
    assert again.replay and torch.equal(again.evaluate(decisions).logprob_NS, policy.evaluate(decisions).logprob_NS)


@pytest.mark.parametrize("bad", [{"chosen": 0}, {"chosen": 5}, {"layers": 0}])
def test_experts_that_are_not_there_are_refused(bad):
    with pytest.raises(ValueError, match="experts"):
        MixtureOfExperts(observations=3, actions=4, **bad)


def test_a_bfloat16_sampler_and_its_trainer_agree_better_on_the_sampler_s_experts():
    decisions, logprob_S = drawn(copy.deepcopy(loud(SPEC)).bfloat16(), length=5000)
    forced, free = (gap(loud(replace(SPEC, replay=on)), decisions, logprob_S) for on in (True, False))
    differ_S = (forced - free).abs() > 1e-4
    assert 0 < differ_S.float().mean() < 0.05, "few decisions are routed elsewhere"
    assert forced[differ_S].mean() < 0.5 * free[differ_S].mean()


def test_the_engine_records_routes_and_anchors_are_routed_alike():
    pytest.importorskip("gymnasium")
    run = recipes.function("routing_replay")()
    trainer = Trainer(replace(run, prompts_per_step=2, max_staleness=0, steps=1, held_out=None))
    try:
        metrics, _, batch = trainer.advance()
    finally:
        trainer.close()
    routes = batch.decisions.action_NSA[..., 1:][batch.mask_NS]
    assert routes.shape[1] == run.policy.layers * run.policy.chosen and routes.max() < run.policy.experts
    assert metrics["mismatch/prob_diff"] < 1e-3
