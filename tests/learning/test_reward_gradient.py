"""Reward backpropagation: gradients against central differences on a linear network, and the cases in which its forms are one."""

import copy
import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from test_denoising_gradients import D, close, differences, gradient, moved, policy_of, said, values

diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from gimbal import recipes
from gimbal.engines.base import Request, drained
from gimbal.engines.denoising import Denoising
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.cached_steps import CachedSteps
from gimbal.learning.updates.gradient_steps import GradientSteps
from gimbal.learning.updates.reward_gradient import NOISE, PLACE, RIVAL, RewardGradient, climbed
from gimbal.policies.denoiser import DenoiserPolicy
from gimbal.policies.paths import Paths, PathSampling
from gimbal.records import Group, Task, TrainBatch
from gimbal.rewards.digits import DigitClass, DigitLikeness
from gimbal.rewards.pair_judge import AbstractPairJudge, AskedSamples
from gimbal.rewards.samples import AbstractSampleReward
from gimbal.runtime.compose import check

STEPS, ROWS = 4, 3
FULL = GradientSteps(count=STEPS)


@dataclass(frozen=True, kw_only=True)
class Bowl(AbstractSampleReward):
    """- |x - 1/2|^2."""

    name: str = "bowl"

    def of_samples(self, x_ND, label_N):
        return -(x_ND - 0.5).square().sum(-1)


def bowl(x_D):
    return -((x_D - 0.5) ** 2).sum()


def flow():
    return policy_of(0, diffusers.FlowMatchEulerDiscreteScheduler())


def batch_of(policy, sampler="ode", noise=0.7, steps=STEPS):
    engine = Denoising(slots=ROWS).start(policy)
    engine.load(0, policy.weights())
    sampling = PathSampling(max_length=steps, sampler=sampler, noise=noise)
    for sample in range(ROWS):
        engine.submit(Request(group=0, task=Task(id="t"), sample=sample, sampling=sampling, seed=0))
    rows = [finished.rollout for _, finished in sorted(drained(engine).items())]
    mask_NS = torch.stack([row.mask_S for row in rows])
    return TrainBatch(
        mask_NS=mask_NS,
        group_N=torch.zeros(ROWS, dtype=torch.long),
        decisions=Paths.stack([row.decisions for row in rows]),
    )


def learner_of(policy, steps, **fields):
    update = RewardGradient(**{"steps": steps, "rewards": (Bowl(),)} | fields)
    return Learner(copy.deepcopy(policy), update, first=lambda: copy.deepcopy(policy))


def ours(policy, batch, steps, **fields):
    """(the gradient, the metrics, the batch with its noises)."""
    learner = learner_of(policy, steps, **fields)
    batch = learner.prepare(batch)
    metrics = learner.forward_backward(batch)
    return gradient(learner.policy), metrics, batch


def drawn(steps, length=STEPS):
    """Those of the learner's first step."""
    return steps.drawn(length, learner_of(flow(), steps).models.random("reward gradient"))


def walk(w, w_now, decisions, n, chosen, end, detached=False):
    """The path of row n with the weights w at the chosen steps and, as a constant, w_now at the others; in float64."""
    x = decisions.state_NXD[n, chosen[0]].flatten().double()
    base = x  # the same path under w_now: what a detached network is given
    for k in range(chosen[0], end + 1):
        _, t, _, s = decisions.level_NSL[n, k].double().tolist()
        time = float(decisions.time_NS[n, k]) / 1000
        if k in chosen:
            v = said(w, base if detached else x, time)
        else:
            v = said(w_now, base, time)
        v_base = said(w_now, base, time)
        if k == end and end < decisions.shape[1] - 1:
            return x - t * v
        a = float(decisions.amplitude_NS[n, k])
        g = a * math.sqrt(t / (1 - (s if t == 1 else t))) if a else 0.0

        def mean(x, v, t=t, s=s, g=g):
            return x - (t - s) * (v + g**2 / (2 * t) * (x + (1 - t) * v))

        drift = (decisions.state_NXD[n, k + 1] - decisions.mean_NSD[n, k]).flatten().double()
        x, base = mean(x, v) + drift, mean(base, v_base) + drift
    return x


def objective(policy, decisions, chosen, end, **options):
    w_now = values(policy)
    return lambda w: -sum(bowl(walk(w, w_now, decisions, n, chosen, end, **options)) for n in range(ROWS)) / ROWS


CASES = {
    "full": GradientSteps(count=STEPS),
    "draft 1": GradientSteps(count=1),
    "draft 2": GradientSteps(count=2),
    "refl": GradientSteps(count=1, late=3),
    "drtune": GradientSteps(count=2, late=2, spaced=True, detached=True),
    "spaced alone": GradientSteps(count=2, spaced=True),
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
@pytest.mark.parametrize("sampler", ["ode", "flow_sde"])
def test_the_gradient_of_each_form(steps, sampler):
    policy = flow()
    found, metrics, batch = ours(policy, batch_of(policy, sampler), steps)
    chosen, end = drawn(steps)
    loss = objective(policy, batch.decisions, chosen, end, detached=steps.detached)
    close(found, differences(loss, values(policy)))
    assert metrics["loss"] == pytest.approx(float(loss(values(policy))), rel=1e-5)
    assert metrics["reward_gradient/steps"] == len(chosen) and metrics["reward_gradient/left"] == STEPS - 1 - end


def test_all_steps_are_the_full_gradient_whatever_weights_drew_the_path():
    """Backpropagation through a loop over the sampler's own step, from the noise."""
    old = flow()
    batch, policy = batch_of(old), moved(old, 0.2)
    found, _, _ = ours(policy, batch, FULL)
    decisions, own = batch.decisions, copy.deepcopy(policy)
    x_ND = decisions.state_NXD[:, 0]
    for k in range(STEPS):
        x_ND, _ = own.step(
            x_ND,
            decisions.level_NSL[:, k],
            decisions.time_NS[:, k],
            decisions.amplitude_NS[:, k],
            decisions.label_N,
            "ode",
        )
    Bowl().of_samples(x_ND.flatten(1), decisions.label_N).mean().neg().backward()
    torch.testing.assert_close(found, gradient(own))


def diffusion():
    return policy_of(0, diffusers.DDIMScheduler(clip_sample=False))


@pytest.mark.parametrize("made_by", [flow, diffusion])
def test_without_noise_a_path_is_what_diffusers_steps_to(made_by):
    policy = made_by()
    learner, batch = learner_of(policy, FULL), batch_of(policy)
    theirs, x_ND = copy.deepcopy(policy.process.scheduler), batch.decisions.state_NXD[:, 0]
    theirs.set_timesteps(STEPS)
    with torch.no_grad():
        for time in theirs.timesteps:
            x_ND = theirs.step(policy.model(x_ND, time.expand(ROWS)).sample, time, x_ND).prev_sample
        mine_ND = learner.update.steps.walked(
            policy, batch.decisions, list(range(STEPS)), STEPS - 1, DenoiserPolicy.found
        )
    torch.testing.assert_close(mine_ND, x_ND, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "made_by, sampler", [(flow, "ode"), (flow, "flow_sde"), (flow, "dance_sde"), (flow, "cps"), (diffusion, "ddim")]
)
def test_the_path_walked_again_by_the_weights_that_drew_it_is_the_recorded_one(made_by, sampler):
    policy = made_by()
    learner, batch = learner_of(policy, FULL), batch_of(policy, sampler)
    with torch.no_grad():
        walked_ND = learner.update.steps.walked(
            policy, batch.decisions, list(range(STEPS)), STEPS - 1, DenoiserPolicy.found
        )
    torch.testing.assert_close(walked_ND, batch.decisions.sample_ND, atol=1e-6, rtol=1e-5)


def test_refl_of_the_last_step_is_draft_of_one():
    policy = flow()
    batch = batch_of(policy)
    one, _, _ = ours(policy, batch, GradientSteps(count=1, late=1))
    chosen, end = drawn(GradientSteps(count=1, late=1))
    assert (chosen, end) == ([STEPS - 1], STEPS - 1)
    # The clean sample that the last step predicts is the sample: the score of both is of the same thing.
    decisions, own = batch.decisions, copy.deepcopy(policy)
    last = STEPS - 1
    x_ND = decisions.state_NXD[:, last]
    found_ND = own.found(x_ND, decisions.time_NS[:, last], decisions.label_N)
    clean_ND, _ = own.process.split(x_ND, found_ND, decisions.level_NSL[:, last])
    Bowl().of_samples(clean_ND.flatten(1), decisions.label_N).mean().neg().backward()
    torch.testing.assert_close(one, gradient(own))


def test_of_a_path_of_one_step_all_forms_are_one():
    policy = flow()
    batch = batch_of(policy, steps=1)
    forms = [
        GradientSteps(),
        GradientSteps(spaced=True),
        GradientSteps(detached=True),
        GradientSteps(spaced=True, detached=True),
    ]
    found = [ours(policy, batch, steps)[0] for steps in forms]
    assert all(torch.equal(one, other) for one, other in pairwise(found))


def test_detached_inputs_matter_where_several_steps_carry_gradient_and_only_there():
    policy = flow()
    batch = batch_of(policy)
    for count in (1, 3):
        kept, cut = (ours(policy, batch, GradientSteps(count=count, detached=cut))[0] for cut in (False, True))
        assert torch.equal(kept, cut) == (count == 1)


def test_copies_are_averaged_with_the_sample():
    """DRaFT-LV: the result, noised again to where the last step began, is denoised again; written out."""
    policy, copies = flow(), 2
    found, _, batch = ours(policy, batch_of(policy), GradientSteps(count=1, copies=copies))
    decisions, w_now, last = batch.decisions, values(policy), STEPS - 1
    _, t, _, _ = decisions.level_NSL[0, last].double().tolist()
    time = float(decisions.time_NS[0, last]) / 1000

    def loss(w):
        total = 0.0
        for n in range(ROWS):
            sample = walk(w_now, w_now, decisions, n, [last], last)
            total += bowl(walk(w, w_now, decisions, n, [last], last))
            for noise in batch.facts[NOISE][n].flatten(1).double():
                x = (1 - t) * sample + t * noise
                total += bowl(x - t * said(w, x, time))
        return -total / (ROWS * (1 + copies))

    close(found, differences(loss, w_now))


def test_beyond_the_limit_nothing_is_climbed():
    policy = flow()
    batch = batch_of(policy)
    with torch.no_grad():
        score_N = Bowl().of_samples(batch.decisions.sample_ND.flatten(1), batch.decisions.label_N)
    none, told, _ = ours(policy, batch, FULL, limit=float(score_N.min()) - 1.0)
    assert not none.any() and told["reward_gradient/limited"] == pytest.approx(1.0)
    middle = float(score_N.median())
    some, told, _ = ours(policy, batch, FULL, limit=middle + 1e-4)
    assert told["reward_gradient/limited"] == pytest.approx((score_N > middle + 1e-4).float().mean().item())
    every, _, _ = ours(policy, batch, FULL)
    assert some.any() and not torch.allclose(some, every)


def test_the_pull_is_to_the_clean_samples_of_the_base_at_one_place_of_each_path():
    policy = flow()
    batch, coef = batch_of(policy), 0.7
    update = RewardGradient(steps=GradientSteps(count=2), coef=coef, rewards=(Bowl(),))
    learner = Learner(moved(policy, 0.2), update, first=lambda: copy.deepcopy(policy))
    w_now, w_first, batch = values(learner.policy), values(policy), learner.prepare(batch)
    told, decisions = learner.forward_backward(batch), batch.decisions
    climbed = objective(learner.policy, decisions, [STEPS - 2, STEPS - 1], STEPS - 1)

    def pull(w):
        total = 0.0
        for n, k in enumerate(batch.facts[PLACE].tolist()):
            x, t = decisions.state_NXD[n, k].flatten().double(), float(decisions.level_NSL[n, k, 1])
            apart = said(w, x, float(decisions.time_NS[n, k]) / 1000) - said(
                w_first, x, float(decisions.time_NS[n, k]) / 1000
            )
            total += ((t * apart) ** 2).mean()
        return total / ROWS

    close(gradient(learner.policy), differences(lambda w: climbed(w) + coef * pull(w), w_now))
    assert told["kl/clean"] == pytest.approx(float(pull(w_now)), rel=1e-4)
    places = {
        int(k) for seed in range(8) for k in Learner(policy, update, seed=seed, first=flow).prepare(batch).facts[PLACE]
    }
    assert places == set(range(STEPS))


@pytest.mark.parametrize("copies", [1, STEPS + 1])
def test_micro_batches_and_checkpointing_change_no_gradient(copies):
    policy = flow()
    batch, steps = batch_of(policy), GradientSteps(count=1, copies=copies)
    whole, told, _ = ours(policy, batch, steps, coef=0.5)
    for optimization in (Optimization(microbatch_tokens=D), Optimization(checkpointing=True)):
        other, same, _ = ours(policy, batch, steps, coef=0.5, optimization=optimization)
        torch.testing.assert_close(other, whole)
        assert same == pytest.approx(told)
    kept, cut = (ours(policy, batch, FULL, optimization=Optimization(checkpointing=on))[0] for on in (False, True))
    torch.testing.assert_close(kept, cut)


def test_steps_drawn():
    generator = np.random.default_rng(0)
    ends, firsts = set(), set()
    for _ in range(200):
        chosen, end = GradientSteps(count=3, late=4, spaced=True).drawn(10, generator)
        gaps = {b - a for a, b in pairwise(chosen)}
        assert len(chosen) == 3 and gaps == {(end + 1) // 3} and chosen[0] >= 0 and chosen[-1] <= end
        ends.add(end)
        firsts.add(chosen[0])
    assert ends == {6, 7, 8, 9} and len(firsts) > 2
    assert GradientSteps(count=3, late=2).drawn(2, np.random.default_rng(1))[0] in ([0, 1], [0])


def test_without_a_step_or_with_copies_of_several_it_is_refused():
    for fields, said_ in (
        ({"count": 0}, "there is no gradient"),
        ({"late": 0}, "at least 1"),
        ({"copies": -1}, "0 or above"),
        ({"count": 2, "copies": 2}, "set count=1 and late=1"),
    ):
        with pytest.raises(ValueError, match=said_):
            GradientSteps(**fields)
    with pytest.raises(ValueError, match="coef is -1"):
        RewardGradient(coef=-1.0)


@dataclass(frozen=True, kw_only=True)
class Steps(Bowl):
    """How many numbers are above 0: without a slope, and it does not say so."""

    wide: bool = False

    def of_samples(self, x_ND, label_N):
        found_ND = (x_ND > 0).float()
        return found_ND if self.wide else found_ND.mean(-1)


def test_a_reward_without_a_gradient_or_of_another_shape_is_named():
    policy = flow()
    batch = batch_of(policy)
    with pytest.raises(ValueError, match=r"Steps has no gradient with respect to the samples.* of_samples from x_ND"):
        ours(policy, batch, FULL, rewards=(Steps(),))
    engine = Denoising(slots=1).start(policy)
    engine.load(0, policy.weights())
    task, sampling = Task(id="t"), PathSampling(max_length=STEPS, sampler="ode")
    engine.submit(Request(group=0, task=task, sample=0, sampling=sampling, seed=0))
    group = Group.of(0, task, [finished.rollout for finished in drained(engine).values()])
    assert len(Steps()(group)) == 1
    with pytest.raises(ValueError, match=r"Steps.of_samples returned a Tensor of shape \[1, \d+\]; .* here \[1\]"):
        Steps(wide=True)(group)


def test_the_runs_rewards_are_climbed_by_their_weights():
    run = recipes.function("draft")()
    score = DigitClass(wanted=4, scale="logit", weight=2.0, name="two")
    near = DigitLikeness(wanted=4, scale="nearness", weight=-0.5, name="near")
    own = replace(run, rewards=(score, near, replace(score, name="other", weight=0.0)))
    assert check(own) == []
    x_ND, label_N = torch.randn(3, 1, 8, 8), torch.full((3,), -1)
    total_N = climbed(own.learns.rewards, x_ND, AskedSamples(label_N=label_N))
    one_N, other_N = (reward.of_samples(x_ND.flatten(1), label_N) for reward in (score, near))
    torch.testing.assert_close(total_N, 2 * one_N - 0.5 * other_N)


def cached(w, w_now, decisions, n, steps, chosen, split):
    """The surrogate of row n with the weights w, written out in float64: the value of the recorded sample at w_now."""
    level = decisions.level_NSL[n].double()
    dt = level[:, 1] - level[:, 3]
    factor = 1 + steps.scale * (dt.sum() / dt[chosen].sum() - 1)
    moved = torch.zeros(D, dtype=torch.float64)
    for k in chosen:
        x, time = decisions.state_NXD[n, k].flatten().double(), float(decisions.time_NS[n, k]) / 1000
        held = said(w_now, x, time)
        moved = moved - factor * dt[k] * (said(w, x + (steps.bridge * moved if k == split else 0), time) - held)
    return decisions.sample_ND[n].flatten().double() + moved


CACHED = {
    "sparse": CachedSteps(count=2, late=1.0, scale=0.5),
    "one": CachedSteps(count=1, late=0.0, scale=0.0),
    "bridge": CachedSteps(count=3, late=1.0, scale=0.3, bridge=0.5),
    "bridge of two": CachedSteps(count=2, scale=0.0, bridge=1.0),
}


@pytest.mark.parametrize("steps", CACHED.values(), ids=CACHED)
def test_the_surrogate_of_a_cached_path(steps):
    policy = flow()
    found, told, batch = ours(policy, batch_of(policy), steps)
    chosen, split = drawn(steps)
    w_now, decisions = values(policy), batch.decisions

    def loss(w):
        return -sum(bowl(cached(w, w_now, decisions, n, steps, chosen, split)) for n in range(ROWS)) / ROWS

    close(found, differences(loss, w_now))
    assert told["reward_gradient/steps"] == steps.count and told["reward_gradient/left"] == 0
    scored_N = Bowl().of_samples(decisions.sample_ND.flatten(1), decisions.label_N)
    assert told["reward_gradient/score"] == pytest.approx(float(scored_N.mean()), rel=1e-6)


def test_all_cached_steps_are_drtune_that_keeps_all():
    policy = flow()
    batch = batch_of(policy)
    kept, _, _ = ours(policy, batch, GradientSteps(count=STEPS, detached=True))
    for steps in (CachedSteps(count=STEPS, scale=0.0), CachedSteps(count=STEPS, scale=1.0, late=3.0)):
        torch.testing.assert_close(ours(policy, batch, steps)[0], kept, atol=1e-5, rtol=1e-5)


def test_the_last_cached_step_alone_is_draft_of_one():
    """With so strong a preference for late steps it is the last that is drawn."""
    policy, last = flow(), CachedSteps(count=1, late=100.0, scale=0.0)
    assert drawn(last) == ([STEPS - 1], -1)
    batch = batch_of(policy)
    one, draft_1 = (ours(policy, batch, steps)[0] for steps in (last, GradientSteps()))
    torch.testing.assert_close(one, draft_1, atol=1e-5, rtol=1e-5)


def test_of_one_step_the_cached_form_is_the_full_gradient():
    policy = flow()
    batch = batch_of(policy, steps=1)
    one, whole = (ours(policy, batch, steps)[0] for steps in (CachedSteps(count=1), GradientSteps(count=1)))
    torch.testing.assert_close(one, whole, atol=1e-5, rtol=1e-5)


def test_a_bridge_is_one_jacobian_times_alpha():
    """Linear in alpha: half of it gives half the difference; on a path of two steps, alpha 1 is the full gradient."""
    policy = flow()
    batch = batch_of(policy)
    none, half, full = (
        ours(policy, batch, CachedSteps(count=STEPS, scale=0.0, bridge=alpha))[0] for alpha in (1e-9, 0.5, 1.0)
    )
    torch.testing.assert_close(half - none, (full - none) / 2, atol=1e-6, rtol=1e-4)
    assert float((full - none).abs().max()) > 1e-3
    two = batch_of(policy, steps=2)
    bridged, walked = (
        ours(policy, two, steps)[0] for steps in (CachedSteps(count=2, scale=0.0, bridge=1.0), GradientSteps(count=2))
    )
    torch.testing.assert_close(bridged, walked, atol=1e-5, rtol=1e-5)


def test_a_cached_path_takes_as_many_evaluations_as_it_has_active_steps(monkeypatch):
    policy, calls = flow(), []
    batch, evaluate = batch_of(policy), type(policy).found
    monkeypatch.setattr(type(policy), "found", lambda self, *given: calls.append(1) or evaluate(self, *given))
    for steps, count in ((CachedSteps(count=2), 2), (GradientSteps(count=2, spaced=True, detached=True), None)):
        calls.clear()
        ours(policy, batch, steps)
        assert len(calls) == (count or STEPS - drawn(steps)[0][0])


def test_cached_steps_drawn():
    generator = np.random.default_rng(0)
    steps = CachedSteps(count=3, late=2.0, bridge=0.5)
    splits, hits = set(), np.zeros(10)
    for _ in range(2000):
        chosen, split = steps.drawn(10, generator)
        assert len(set(chosen)) == 3 and chosen == sorted(chosen) and split in chosen and chosen[0] < split
        splits.add(split)
    assert splits == set(range(1, 10))
    for _ in range(2000):
        chosen, split = CachedSteps(count=1, late=1.0).drawn(10, generator)
        assert split == -1
        hits[chosen] += 1
    assert np.allclose(hits / 2000, np.arange(1, 11) / 55, atol=0.03)


def test_micro_batches_and_checkpointing_change_no_cached_gradient():
    policy, steps = flow(), CACHED["bridge"]
    batch = batch_of(policy)
    whole, told, _ = ours(policy, batch, steps)
    for optimization in (Optimization(microbatch_tokens=D), Optimization(checkpointing=True)):
        other, same, _ = ours(policy, batch, steps, optimization=optimization)
        torch.testing.assert_close(other, whole, atol=1e-5, rtol=1e-5)
        assert same == pytest.approx(told)


def test_cached_steps_out_of_range_or_of_another_path_are_refused():
    for fields, said_ in (
        ({"count": 0}, "there is no gradient"),
        ({"late": -1.0}, "late must be from 0"),
        ({"late": math.nan}, "late must be from 0"),
        ({"scale": 1.5}, "from 0 to 1"),
        ({"bridge": -0.1}, "from 0 to 1"),
        ({"count": 1, "bridge": 0.5}, "set count=2 or bridge=0"),
    ):
        with pytest.raises(ValueError, match=said_):
            CachedSteps(**fields)
    policy = diffusion()
    with pytest.raises(ValueError, match=r"has the scheduler DDIMScheduler: use update\.steps=GradientSteps"):
        ours(policy, batch_of(policy), CachedSteps(count=1))


@dataclass(frozen=True, kw_only=True)
class Duel(AbstractPairJudge):
    """P in two criteria, of the sums and of the first numbers."""

    name: str = "duel"

    def beats(self, x_ND, rival_ND, asked):
        apart_ND = x_ND - rival_ND
        return torch.stack([apart_ND.sum(-1), 3 * apart_ND[:, 0]], -1).sigmoid()


def duelled(first, policy, **fields):
    update = RewardGradient(steps=GradientSteps(count=2), rewards=(Duel(**fields),))
    return Learner(copy.deepcopy(policy), update, first=lambda: copy.deepcopy(first))


@pytest.mark.parametrize("limit", [1.0, 0.7])
def test_a_judge_of_pairs_is_climbed_against_what_the_first_model_draws(limit):
    """OneReward: the rivals by Euler steps of the first weights from noise of their own, the gradient by central differences."""
    first = flow()
    policy = moved(first, 0.3)
    learner = duelled(first, policy, limit=limit)
    batch = learner.prepare(batch_of(policy, "ode"))
    decisions, w_first = batch.decisions, values(first)
    rivals = []
    for n in range(ROWS):
        found = batch.facts[RIVAL][n, 0].flatten().double()
        levels, times = decisions.level_NSL[n].double(), decisions.time_NS[n].double() / 1000
        # Euler steps are linear in where they begin, so the noise can be had back from the rival.
        at_zero = end(w_first, torch.zeros(D, dtype=torch.float64), levels, times)
        units = torch.stack([end(w_first, e, levels, times) - at_zero for e in torch.eye(D, dtype=torch.float64)], -1)
        rivals.append((found, torch.linalg.solve(units, found - at_zero)))
    noise_ND = torch.stack([noise_D for _, noise_D in rivals])
    assert 0.3 < float(noise_ND.std()) < 2 and len({round(float(x), 4) for x in noise_ND.flatten()}) == ROWS * D
    starts_ND = decisions.state_NXD[:, 0].flatten(1).double()
    assert float((noise_ND - starts_ND).abs().max()) > 0.1, "other noise than the samples'"

    def loss(w):
        total = 0.0
        for n, (rival_D, _) in enumerate(rivals):
            apart_D = walk(w, values(policy), decisions, n, [2, 3], 3) - rival_D
            for x in (apart_D.sum(), 3 * apart_D[0]):
                total -= min(float(x.sigmoid()), limit) / 2
        return torch.tensor(total / ROWS, dtype=torch.float64)

    metrics = learner.forward_backward(batch)
    assert metrics["loss"] == pytest.approx(float(loss(values(policy))), rel=1e-4)
    ours_W, theirs_W = gradient(learner.policy), differences(loss, values(policy))
    torch.testing.assert_close(ours_W, theirs_W, atol=2e-4 * float(theirs_W.abs().max()), rtol=2e-3)
    assert float(theirs_W.abs().max()) > 0


def end(w, x, levels, times):
    for (_, t, _, s), time in zip(levels, times, strict=True):
        x = x - (t - s) * said(w, x, time)
    return x


def test_only_a_judge_of_pairs_costs_rivals():
    policy = flow()
    plain, judged = learner_of(policy, GradientSteps()), duelled(policy, policy)
    batch = batch_of(policy, "ode")
    assert RIVAL not in plain.prepare(batch).facts and judged.prepare(batch).facts[RIVAL].shape == (ROWS, 1, 1, 2, 2)
    idle = RewardGradient(rewards=(Bowl(), Duel(weight=0.0)))
    assert not idle.compares and set(idle.models()) == {"policy"}
    assert set(replace(idle, rewards=(Duel(),)).models()) == {"policy", "reference"}
