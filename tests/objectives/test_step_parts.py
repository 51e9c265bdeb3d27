"""Losses of denoising steps: their limiting cases."""

import math
from dataclasses import replace

import made
import pytest
import torch

from gimbal import ops
from gimbal.objectives import ClippedStep, GatedStepKL, Reinforce, StepKL, VelocityPenalty
from gimbal.policies.samplers import step
from gimbal.records import TrainBatch

N, S, D = 6, 3, 4


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def batch(scale=1.0, **columns):
    mask_NS = torch.ones(N, S, dtype=torch.bool)
    mask_NS[1, 2] = False
    facts = {
        "mean_NSD": draw(N, S, D),
        "reference/mean_NSD": draw(N, S, D, seed=1),
        "std_NS": 0.5 + draw(N, S, seed=2).abs(),
        "scale_NS": torch.full((N, S), scale),
    }
    return TrainBatch(mask_NS=mask_NS, facts=facts | columns, live=frozenset({"mean_NSD"}))


def test_at_the_reference_the_kl_and_its_gradient_are_0():
    mean_NSD = draw(N, S, D, seed=1).requires_grad_()
    terms = StepKL()(torch.zeros(N, S), batch(mean_NSD=mean_NSD))
    terms.loss_NS.sum().backward()
    assert not terms.loss_NS.any() and not mean_NSD.grad.any()
    assert not StepKL(coef=0.0)(torch.zeros(N, S), batch()).loss_NS.any()


@pytest.mark.parametrize("sampler, amplitude", [("flow_sde", 0.7), ("dance_sde", 0.3), ("cps", 0.5), ("ddim", 1.0)])
def test_the_closed_form_is_the_expectation_of_k1_and_of_k3_for_every_sampler(sampler, amplitude):
    x, clean, noise = draw(1, D), draw(1, D, seed=1), draw(1, D, seed=2)
    flow, diffusion = [0.4, 0.6, 0.5, 0.5], [0.6, 0.8, 0.8, 0.6]
    level = torch.tensor([diffusion if sampler == "ddim" else flow])
    (mean, std), (other, _) = (
        step(sampler, x, c, noise, level, torch.tensor([amplitude])) for c in (clean, clean + 0.15 * draw(1, D, seed=3))
    )
    kl, own, held = made.one_step(mean, other, std, seed=4)
    assert 0.001 < kl < 1
    for estimate in (ops.k1(own, held), ops.k3(own, held)):
        assert abs(kl - float(estimate.mean())) < 4 * float(estimate.std()) / math.sqrt(len(own))


def test_at_the_reference_the_velocity_penalty_and_its_gradient_are_0_and_off_it_the_pull_is_towards_it():
    velocity_NSD = draw(N, S, D, seed=1).requires_grad_()
    held = {"reference/velocity_NSD": draw(N, S, D, seed=1)}
    live = frozenset({"velocity_NSD"})
    terms = VelocityPenalty()(torch.zeros(N, S), replace(batch(velocity_NSD=velocity_NSD, **held), live=live))
    (there,) = torch.autograd.grad(terms.loss_NS.sum(), velocity_NSD)
    assert not terms.loss_NS.any() and not there.any()
    b = replace(batch(velocity_NSD=velocity_NSD + 0.5, **held), live=live)
    terms = VelocityPenalty(coef=3.0)(torch.zeros(N, S), b)
    assert torch.allclose(terms.loss_NS[b.mask_NS], torch.tensor(0.75)) and not terms.loss_NS[1, 2]
    (off,) = torch.autograd.grad(terms.loss_NS.sum(), velocity_NSD)
    assert torch.allclose(off[b.mask_NS], torch.tensor(3.0 * 2 * 0.5 / D))
    assert not VelocityPenalty(coef=0.0)(torch.zeros(N, S), b).loss_NS.any()
    with pytest.raises(ValueError, match=r"VelocityPenalty\.coef is -1"):
        VelocityPenalty(coef=-1.0)


@pytest.mark.parametrize("t, after", [(0.9, 0.7), (0.5, 0.25)])
def test_of_the_flow_sde_the_exact_kl_is_the_velocity_penalty_times_a_factor_of_the_noise_level(t, after):
    amplitude, x, level = 0.7, draw(1, D), torch.tensor([[1 - t, t, 1 - after, after]])
    velocities = draw(1, D, seed=1), draw(1, D, seed=2)
    # In a state x, the sample is x - t v and the noise x + (1 - t) v.
    moved = [step("flow_sde", x, x - t * v, x + (1 - t) * v, level, torch.tensor([amplitude])) for v in velocities]
    facts = {"std_NS": moved[0][1][None], "scale_NS": torch.full((1, 1), 1 / D)}
    for place, (mean, _), v in zip(("", "reference/"), moved, velocities, strict=True):
        facts |= {f"{place}mean_NSD": mean[None], f"{place}velocity_NSD": v[None]}
    b = TrainBatch(mask_NS=torch.ones(1, 1, dtype=torch.bool), facts=facts)
    kl, ours = (float(part(coef=1.0)(torch.zeros(1, 1), b).loss_NS) for part in (StepKL, VelocityPenalty))
    g, dt = amplitude * math.sqrt(t / (1 - t)), t - after
    assert kl == pytest.approx(dt / 2 * (g * (1 - t) / (2 * t) + 1 / g) ** 2 * ours, rel=1e-4) and ours > 0.1


def test_of_one_dimension_sum_and_mean_are_one_and_at_the_anchor_the_gradient_is_that_of_reinforce():
    logprob_NS = draw(N, S).requires_grad_()
    for scale in (1.0, 1 / 64):
        b = replace(batch(scale), proximal_NS=logprob_NS.detach(), advantage_NS=draw(N, S, seed=3))
        ours, plain = (
            torch.autograd.grad(part(logprob_NS, b).loss_NS[b.mask_NS].sum(), logprob_NS)[0]
            for part in (ClippedStep(), Reinforce())
        )
        torch.testing.assert_close(ours, plain)
    assert ours.abs().max() > 0


def doubted(reward_N, coarse_N, **fields):
    """(the gate, the loss, StepKL's) of samples with these rewards and auxiliary scores."""
    reward_NS = torch.zeros(N, S)
    reward_NS[:, 1] = torch.tensor(reward_N)
    b = replace(batch(), reward_NS=reward_NS).with_columns({"score/coarse": torch.tensor(coarse_N)})
    part = GatedStepKL(coef=1.0, auxiliary=("coarse",), **fields)
    facts = part.survey(b)
    terms = part(torch.zeros(N, S), b.with_columns(facts))
    return facts, terms, StepKL(coef=1.0)(torch.zeros(N, S), b)


REWARD = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
COARSE = [3.0, 1.0, 2.0, 0.0, 5.0, 4.0]  # ranks 3, 1, 2, 0, 5, 4: U = -3, 0, 0, 3, -1, 1 sixths


def test_the_gate_is_of_those_that_win_by_the_reward_and_not_by_others():
    facts, terms, plain = doubted(REWARD, COARSE, share=0.2)
    assert facts["gate/frac"].tolist() == [0, 0, 0, 1, 0, 1], "two of six, rounded up"
    assert torch.equal(terms.loss_NS[[0, 1, 2, 4]], torch.zeros(4, S))
    torch.testing.assert_close(terms.loss_NS[[3, 5]], 3 * plain.loss_NS[[3, 5]])
    # sum_i M_i KL_i / sum_i M_i, KL_i the mean over steps: rows 3 and 5 have all of theirs.
    assert float(terms.loss_NS.sum(-1).mean()) == pytest.approx(float(plain.loss_NS[[3, 5]].sum(-1).mean()))
    assert float(terms.metrics["gate/doubt"].mean()) == pytest.approx((0 + 0 + 3 + 1) / 6 / 4)
    assert torch.equal(terms.metrics["kl/ref"], plain.metrics["kl/ref"]), "of all samples"
    assert doubted(REWARD, COARSE, share=0.9)[0]["gate/frac"].tolist() == [0, 1, 1, 1, 0, 1], "no more than are doubted"


def test_of_all_it_is_the_plain_kl_and_of_none_nothing():
    _, terms, plain = doubted(REWARD, COARSE, share=1.0)
    torch.testing.assert_close(terms.loss_NS, plain.loss_NS)
    assert not doubted(REWARD, COARSE, share=0.0)[1].loss_NS.any()


def test_an_auxiliary_that_agrees_doubts_nobody_and_without_any_the_best_are_held():
    facts, *_ = doubted(REWARD, [x**3 for x in REWARD], share=0.5)
    assert not facts["gate/doubt"].any() and facts["gate/frac"].sum() == 3, "U = 0 is not below 0"
    b = replace(batch(), reward_NS=torch.zeros(N, S)).with_columns({"reward_NS": draw(N, S, seed=5) * batch().mask_NS})
    best = GatedStepKL(share=0.3).survey(b)["gate/frac"]
    assert best.bool().nonzero()[:, 0].tolist() == sorted(b.return_N.topk(2).indices.tolist())


def test_rows_of_which_nothing_counts_are_nobodys_rivals():
    b = replace(batch(), reward_NS=torch.zeros(N, S)).with_columns({"score/coarse": torch.tensor(COARSE)})
    b = replace(b, mask_NS=b.mask_NS & (torch.arange(N) != 3)[:, None])
    facts = GatedStepKL(share=1.0, auxiliary=("coarse",)).survey(b)
    assert facts["gate/frac"].tolist() == [1, 1, 1, 0, 1, 1]


def test_a_share_that_is_none_is_refused():
    with pytest.raises(ValueError, match="from 0 to 1"):
        GatedStepKL(share=1.1)
