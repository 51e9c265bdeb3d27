"""Updates on finished samples, held against what their equations say and against each other."""

import copy
import math
from dataclasses import replace

import made
import pytest
import torch

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from gimbal import recipes
from gimbal.advantages import GroupCentered
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates import forward_process
from gimbal.learning.updates.forward_process import (
    AdvantageWeightedMatching,
    DiffusionDPO,
    DiffusionGDRO,
    DiffusionNFT,
)
from gimbal.policies.denoiser import Denoiser
from gimbal.runtime.compose import check

ROWS, DRAWS, STEPS = 6, 3, 4
SPEC = Denoiser(batch=ROWS * DRAWS)


@pytest.fixture(scope="module")
def base():
    torch.set_num_threads(1)
    return SPEC.load(0)


def samples(rewards):
    return made.finished(rewards, (0, 0, 1, 1, 2, 2), side=8)


REWARDS = [1.0, -1.0, 0.5, 0.0, 2.0, -2.0]


def prepared(base, update, rewards=REWARDS):
    learner = Learner(copy.deepcopy(base), update, first=lambda: copy.deepcopy(base))
    return learner, learner.prepare(samples(rewards))


def gradient_of(learner, batch):
    learner.forward_backward(batch)
    found = torch.cat([w.grad.flatten() for w in learner.policy.parameters() if w.grad is not None])
    learner.policy.zero_grad()
    return found


def plain(base, learner, batch, weight_N):
    """Gradient of the mean of weight |v - v*|^2 over samples and draws, written out."""
    policy = copy.deepcopy(base)
    place_NK, eps_NKD = batch.facts[forward_process.PLACE], batch.facts[forward_process.EPS]
    total = torch.zeros(())
    for n in range(ROWS):
        for k in range(DRAWS):
            x0, eps, t = batch.decisions.sample_ND[n], eps_NKD[n, k], place_NK[n, k]
            said = policy.model(
                (1 - t) * x0[None] + t * eps[None], timestep=1000 * t[None], class_labels=torch.tensor([10])
            ).sample
            total = total + weight_N[n] * (said[0] - (eps - x0)).square().mean() / (ROWS * DRAWS)
    total.backward()
    return torch.cat([w.grad.flatten() for w in policy.parameters() if w.grad is not None])


def test_awm_at_ratio_1_is_matching_weighted_by_the_advantage(base):
    update = AdvantageWeightedMatching(draws=DRAWS, coef=0.0, advantage=GroupCentered())
    learner, batch = prepared(base, update)
    ours = gradient_of(learner, batch)
    size_N = batch.facts[forward_process.SIZE]
    assert size_N.tolist() == [1.0, -1.0, 0.25, -0.25, 2.0, -2.0]
    torch.testing.assert_close(ours, plain(base, learner, batch, size_N), atol=1e-5, rtol=1e-3)


def test_awm_is_held_where_its_clip_says(base):
    """lp far above lp_old where A > 0 and far below where A < 0: the clip leaves no gradient. The other way round it leaves all."""
    update = AdvantageWeightedMatching(draws=DRAWS, coef=0.0, clip=0.01, advantage=GroupCentered())
    learner, batch = prepared(base, update)
    before_NK, side_N1 = batch.facts["forward/old"], batch.facts[forward_process.SIZE].sign()[:, None]
    gone, back = (
        gradient_of(learner, batch.with_columns({"forward/old": before_NK + x * side_N1})) for x in (0.5, -0.5)
    )
    assert float(gone.abs().max()) == 0 < float(back.abs().max())


def test_nft_where_all_are_as_good_stays_where_old_is(base):
    learner, batch = prepared(base, DiffusionNFT(draws=DRAWS, coef=0.0), rewards=[1.0] * ROWS)
    even = gradient_of(learner, batch)
    learner, batch = prepared(base, DiffusionNFT(draws=DRAWS, coef=0.0))
    assert float(even.abs().max()) < 1e-4 * float(gradient_of(learner, batch).abs().max())


@pytest.mark.parametrize("b", [1.0, 0.5])
def test_nft_at_old_is_awm_with_the_advantage_over_the_limit(base, b, monkeypatch):
    """In the space of velocities, where x0 hat - x0 is v - v*; the self-normalisation is a constant weight at this point."""
    update = DiffusionNFT(draws=DRAWS, coef=0.0, b=b, limit=5.0, advantage=GroupCentered())
    learner, batch = prepared(base, update)
    process = learner.policy.process

    def velocities(x_KD, found_KD, level_KL):
        return rows.clean_JD + (found_KD - rows.wanted_JD), found_KD

    rows = forward_process.noised(learner.models, batch)
    monkeypatch.setattr(process, "split", velocities)
    sizes = (rows.said(learner.policy) - rows.wanted_JD).flatten(1).abs().mean(-1).detach()
    ours = gradient_of(learner, batch)
    policy = copy.deepcopy(base)
    said = rows.said(policy)
    missed = (said - rows.wanted_JD).flatten(1).square().mean(-1) / sizes
    weight = batch.facts[forward_process.SIZE].repeat_interleave(DRAWS)  # limit / b x b x A / limit
    (weight * missed).mean().backward()
    theirs = torch.cat([w.grad.flatten() for w in policy.parameters() if w.grad is not None])
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-2)


def test_old_is_the_policy_as_the_step_began_and_lags_later(base):
    update = DiffusionNFT(draws=DRAWS, slow=0.25, most=0.5, optimization=Optimization(learning_rate=1e-3))
    learner, batch = prepared(base, update)
    first = [w.detach().clone() for w in learner.models["old"].parameters()]
    metrics = learner.step(batch)
    assert metrics["nft/decay"] == 0.25 and metrics["kl/velocity"] == 0
    pairs = zip(first, learner.models["old"].parameters(), learner.policy.parameters(), strict=True)
    assert all(torch.allclose(old, 0.25 * before + 0.75 * now, atol=1e-7) for before, old, now in pairs)
    assert learner.step(learner.prepare(samples(REWARDS)))["kl/velocity"] > 0


def test_dpo_of_two_is_the_gradient_of_its_log_sigmoid(base):
    """Groups of two with A = +-1: - log sigmoid(-(beta / 2)(d_w - d_l)), by autograd, at a policy that is not the reference."""
    beta, shift = 20.0, 0.01
    update = DiffusionDPO(draws=DRAWS, beta=beta, advantage=GroupCentered())
    learner = Learner(copy.deepcopy(base), update, first=lambda: copy.deepcopy(base))
    with torch.no_grad():
        for weight in learner.policy.parameters():
            weight.add_(shift * weight.abs().mean())
    batch = learner.prepare(samples([1.0, -1.0] * 3))
    rows = forward_process.noised(learner.models, batch)
    eps_NKD = batch.facts[forward_process.EPS]
    assert torch.equal(eps_NKD[0], eps_NKD[1]) and not torch.equal(eps_NKD[0], eps_NKD[2])
    policy = copy.deepcopy(learner.policy)
    d_NK = rows.missed(rows.said(policy)) - rows.missed(rows.said(base)).detach()
    margin_GK = d_NK[0::2] - d_NK[1::2]
    loss = -torch.nn.functional.logsigmoid(-beta / 2 * margin_GK).mean() / (beta / 2) / 2
    loss.backward()
    theirs = torch.cat([w.grad.flatten() for w in policy.parameters() if w.grad is not None])
    torch.testing.assert_close(gradient_of(learner, batch), theirs, atol=1e-5, rtol=1e-3)
    still, same = prepared(base, update)
    told = still.step(same)
    assert told["dpo/undecided"] == pytest.approx(0.5) and told["dpo/margin"] == 0


def shifted(base, update, rewards, groups=(0, 0, 1, 1, 2, 2)):
    """(a learner whose policy is not the reference, the batch)."""
    learner = Learner(copy.deepcopy(base), update, first=lambda: copy.deepcopy(base))
    with torch.no_grad():
        for weight in learner.policy.parameters():
            weight.add_(0.01 * weight.abs().mean())
    return learner, learner.prepare(made.finished(rewards, groups, side=8))


def test_gdro_of_two_is_diffusion_dpo_of_twice_its_beta(base):
    """tau to 0 and gamma 0. DPO's gradient is divided by beta / 2, and A = +-1."""
    beta = 10.0
    pairs = [1.0, -1.0] * 3
    ranked = gradient_of(*shifted(base, DiffusionGDRO(draws=DRAWS, beta=beta, tau=1e-3), pairs))
    dpo = DiffusionDPO(draws=DRAWS, beta=2 * beta, advantage=GroupCentered())
    torch.testing.assert_close(ranked, beta * gradient_of(*shifted(base, dpo, pairs)), atol=1e-5, rtol=1e-3)
    learner, batch = shifted(base, DiffusionGDRO(draws=DRAWS, beta=beta, tau=1e-3), pairs)
    rows = forward_process.noised(learner.models, batch)
    s_NK = -beta * (rows.missed(rows.said(learner.policy)) - rows.missed(rows.said(base))).detach()
    loss = (-1 / 2 * torch.nn.functional.logsigmoid(s_NK[0::2] - s_NK[1::2])).mean()
    assert learner.forward_backward(batch)["gdro/loss"] == pytest.approx(float(loss), rel=1e-4)


def test_gdro_at_the_reference_is_by_the_wanted_shares_less_equal_ones(base):
    one_group, update = [0] * ROWS, DiffusionGDRO(draws=DRAWS, beta=1.0, tau=0.5)
    learner = Learner(copy.deepcopy(base), update, first=lambda: copy.deepcopy(base))
    batch = learner.prepare(made.finished(REWARDS, one_group, side=8))
    order = sorted(range(ROWS), key=lambda n: -REWARDS[n])
    weight_N = torch.zeros(ROWS)
    for i in range(ROWS - 1):
        left = order[i:]
        weight_N[left] += torch.tensor([REWARDS[n] for n in left]).div(0.5).softmax(0) - 1 / len(left)
    told = learner.forward_backward(batch)
    assert told["gdro/loss"] == pytest.approx(1 / ROWS * math.log(math.factorial(ROWS)), rel=1e-5)
    assert told["gdro/spread"] == 0
    learner.policy.zero_grad()
    torch.testing.assert_close(gradient_of(learner, batch), plain(base, learner, batch, weight_N), atol=1e-5, rtol=1e-3)
    blind, same = Learner(copy.deepcopy(base), replace(update, tau=1e9), first=lambda: copy.deepcopy(base)), batch
    assert float(gradient_of(blind, same).abs().max()) < 1e-4 * float(gradient_of(learner, batch).abs().max())


def test_gdro_without_softness_is_the_likelihood_of_the_ranking(base):
    """- (1 / k) log of Plackett-Luce, by autograd, at a policy that is not the reference."""
    beta = 5.0
    learner, batch = shifted(base, DiffusionGDRO(draws=DRAWS, beta=beta, tau=1e-4), REWARDS, [0] * ROWS)
    rows, policy = forward_process.noised(learner.models, batch), copy.deepcopy(learner.policy)
    s_NK = -beta * (rows.missed(rows.said(policy)) - rows.missed(rows.said(base)).detach())
    s_NK = s_NK[sorted(range(ROWS), key=lambda n: -REWARDS[n])]
    loss = (-1 / ROWS * sum(s_NK[i] - s_NK[i:].logsumexp(0) for i in range(ROWS))).mean()
    loss.backward()
    theirs = torch.cat([w.grad.flatten() for w in policy.parameters() if w.grad is not None])
    torch.testing.assert_close(gradient_of(learner, batch), theirs, atol=1e-5, rtol=1e-3)


def surveyed(learner, batch):
    """(what each sample's matching loss is multiplied by at each draw, gamma's part of it)"""
    facts = learner.update.survey(learner.models, batch)[0].facts
    return facts["forward/pull"], facts["forward/best"]


def test_gdro_gives_tied_samples_equal_weights(base):
    """At the reference, where s is 0: the softmax of each good one is over all, and the lowest have none of their own."""
    update = DiffusionGDRO(draws=DRAWS, beta=1.0, tau=0.05, gamma=0.6)
    learner = Learner(copy.deepcopy(base), update, first=lambda: copy.deepcopy(base))
    pull_NK, best_N = surveyed(learner, learner.prepare(made.finished([1.0, 1, 1, 0, 0, 0], [0] * ROWS, side=8)))
    good = 3 * (1 / 3 - 1 / 6)
    torch.testing.assert_close(pull_NK, torch.tensor([good] * 3 + [-good] * 3)[:, None].expand(-1, DRAWS))
    torch.testing.assert_close(best_N, torch.tensor([0.2] * 3 + [0.0] * 3))


def test_gdro_does_not_depend_on_the_order_of_tied_samples(base):
    update = DiffusionGDRO(draws=DRAWS, beta=5.0, tau=0.5, gamma=0.6)
    learner, batch = shifted(base, update, [1.0, 0.5, 1.0, 0.0, 0.5, 0.0], [0] * ROWS)
    order = torch.tensor([5, 4, 3, 2, 1, 0])
    for here, there in zip(surveyed(learner, batch), surveyed(learner, batch.select(order)), strict=True):
        torch.testing.assert_close(here[order], there)


def test_gdro_of_equal_rewards_learns_nothing(base):
    """Off the reference as well, and with gamma; a group whose rewards differ learns beside it."""
    update = DiffusionGDRO(draws=DRAWS, gamma=0.5)
    learner, batch = shifted(base, update, [1.0] * ROWS)
    assert not gradient_of(learner, batch).any()
    assert learner.forward_backward(batch)["gdro/loss"] == 0
    learner, batch = shifted(base, update, [1.0, 1.0, 0.3, 0.3, 1.0, 0.0])
    told = [fact.reshape(ROWS, -1).any(-1).tolist() for fact in surveyed(learner, batch)]
    assert told == [[False] * 4 + [True] * 2, [False] * 4 + [True, False]]


def test_gdro_without_ties_is_by_rank(base):
    beta, tau, gamma = 5.0, 0.5, 0.6
    learner, batch = shifted(base, DiffusionGDRO(draws=DRAWS, beta=beta, tau=tau, gamma=gamma), REWARDS, [0] * ROWS)
    pull_NK, best_N = surveyed(learner, batch)
    s_NK = -beta * learner.update.behind(learner.models, batch)
    order = sorted(range(ROWS), key=lambda n: -REWARDS[n])
    wanted_NK = torch.zeros_like(pull_NK)
    for i in range(ROWS - 1):
        left = order[i:]
        share_G1 = torch.tensor([REWARDS[n] for n in left]).div(tau).softmax(0)[:, None]
        wanted_NK[left] += beta * (share_G1 - s_NK[left].softmax(0))
    torch.testing.assert_close(pull_NK, wanted_NK, atol=1e-5, rtol=1e-4)
    assert best_N.tolist() == pytest.approx([gamma * (n == order[0]) for n in range(ROWS)])


def test_dpo_of_equal_rewards_learns_nothing(base):
    learner, batch = prepared(base, DiffusionDPO(draws=DRAWS, advantage=GroupCentered()), rewards=[1.0] * ROWS)
    assert not gradient_of(learner, batch).any()


def test_awm_without_a_clip_is_not_held(base):
    update = AdvantageWeightedMatching(draws=DRAWS, coef=0.0, clip=float("inf"), advantage=GroupCentered())
    learner, batch = prepared(base, update)
    far = {"forward/old": batch.facts["forward/old"] + 0.5 * batch.facts[forward_process.SIZE].sign()[:, None]}
    size_N = batch.facts[forward_process.SIZE]
    ours = gradient_of(learner, batch.with_columns(far))
    # The ratio is exp(-0.5) where A < 0 and exp(0.5) where A > 0, and the clip takes neither back.
    theirs = plain(base, learner, batch, size_N * (0.5 * size_N.sign()).exp())
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-3)


def test_nft_of_the_best_alone_is_matching_on_the_samples(base):
    """b = 1 and r = 1: self-normalised matching, in clean samples."""
    update = DiffusionNFT(draws=DRAWS, coef=0.0, b=1.0, limit=0.01, advantage=GroupCentered())
    learner, batch = prepared(base, update)
    best = batch.with_columns({forward_process.SIZE: torch.ones(ROWS)})
    ours = gradient_of(learner, best)
    policy = copy.deepcopy(base)
    rows = forward_process.noised(learner.models, best)
    clean_JD, _ = policy.process.split(rows.state_JD, rows.said(policy), rows.level_JL)
    apart_JD = (clean_JD - rows.clean_JD).flatten(1)
    (0.01 * apart_JD.square().mean(-1) / apart_JD.detach().abs().mean(-1)).mean().backward()
    theirs = torch.cat([w.grad.flatten() for w in policy.parameters() if w.grad is not None])
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-3)


def test_with_slow_0_old_is_the_policy_as_each_step_begins(base):
    update = DiffusionNFT(draws=DRAWS, slow=0.0, optimization=Optimization(learning_rate=1e-3))
    learner, batch = prepared(base, update)
    for _ in range(2):
        learner.step(batch)
        pairs = zip(learner.models["old"].parameters(), learner.policy.parameters(), strict=True)
        assert all(torch.equal(old, now) for old, now in pairs)
        batch = learner.prepare(samples(REWARDS))


def test_micro_batches_change_no_gradient(base):
    for update in (
        DiffusionNFT(draws=DRAWS),
        AdvantageWeightedMatching(draws=DRAWS),
        DiffusionDPO(draws=DRAWS),
        DiffusionGDRO(draws=DRAWS, gamma=0.5),
    ):
        whole, batch = prepared(base, update)
        small = replace(update, optimization=Optimization(microbatch_tokens=64))
        cut, same = prepared(base, small)
        torch.testing.assert_close(gradient_of(cut, same), gradient_of(whole, batch), atol=1e-6, rtol=1e-3)


def test_what_does_not_go_together_is_refused():
    run = recipes.function("diffusion_nft")()
    with pytest.raises(ValueError, match="no more draws than steps"):
        check(replace(run, update=replace(run.update, draws=11)))
    with pytest.raises(ValueError, match="b is above 0"):
        DiffusionNFT(b=0.0)
    with pytest.raises(ValueError, match="beta and tau must be above 0"):
        DiffusionGDRO(tau=0.0)
    gradient = recipes.function("flow_grpo")()
    with pytest.raises(ValueError, match="sampler=ode samples no step"):
        check(replace(gradient, sampling=replace(gradient.sampling, sampler="ode")))
