"""Trajectory Diffuser against sums taken here, and the limiting cases of what it plans by."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_offline_control import gradient

from gimbal import recipes
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.plan_learning import EARNED, IN_PLAN, LEVEL, PlanLearning
from gimbal.policies.control import Steps
from gimbal.policies.drafted_plan import DraftedPlan
from gimbal.policies.gaussian import Gaussian
from gimbal.records import TrainBatch
from gimbal.report.files import deterministic
from gimbal.runtime import compose
from gimbal.runtime.local import Trainer

SIZES = {"observations": 3, "actions": 2, "hidden": (8,), "bound": 1.5}
SPEC = DraftedPlan(**SIZES, horizon=2, chain=4, refine=2, candidates=3)
PLAIN = Optimization(learning_rate=0.01, max_grad_norm=math.inf)
SEEN = torch.randn(5, 3, generator=torch.Generator().manual_seed(4))
LENGTHS = (5, 3)


def episodes():
    """Two of them, of five and three steps."""
    g = torch.Generator().manual_seed(0)
    length_N = torch.tensor(LENGTHS)
    steps = Steps(
        observation_NSO=torch.randn(2, 5, 3, generator=g),
        action_NSA=torch.randn(2, 5, 2, generator=g).tanh(),
        final_NO=torch.randn(2, 3, generator=g),
        length_N=length_N,
        terminated_N=torch.tensor([False, True]),
    )
    mask_NS = torch.arange(5) < length_N[:, None]
    reward_NS = torch.randn(2, 5, generator=g) * mask_NS
    return TrainBatch(mask_NS=mask_NS, reward_NS=reward_NS, decisions=steps)


def learned(spec=SPEC, **changes):
    return Learner(spec.load(1), PlanLearning(optimization=PLAIN, **changes), seed=0)


def normed(rows):
    return rows.mean(0), (rows.var(0, unbiased=False) + 1e-8).sqrt()


def test_trajectory_diffuser_is_its_equations():
    learner = learned(gamma=0.8, expectile=0.7)
    models, policy, update = learner.models, learner.policy, learner.update
    batch = update.survey(models, update.prepare(models, episodes())[0])[0]
    found = next(iter(update.losses(models, batch)))
    steps = episodes().decisions
    every, afterwards, earned = [], [], []
    for n, length in enumerate(LENGTHS):
        path = torch.cat([steps.observation_NSO[n, :length], steps.final_NO[n : n + 1]])
        later, sums = 0.0, []
        for reward in episodes().reward_NS[n, :length].flip(0):
            later = float(reward) + 0.8 * later
            sums.append(later)
        every.append(path), earned.append(torch.tensor(sums).flip(0))
        afterwards.append(path)
    mean, spread = normed(torch.cat([path[:-1] for path in every]))
    paths = [(path - mean) / spread for path in every]
    of_change, of_return = normed(torch.cat([x[1:] - x[:-1] for x in paths])), normed(torch.cat(earned)[:, None])
    totals = {name: [] for name in ("draft", "noise", "inverse", "judge", "aim")}
    kept = torch.exp(-torch.tensor([0.1 * k / 4 + 9.95 * (k / 4) ** 2 for k in range(5)]))
    for n, length in enumerate(LENGTHS):
        x, r = paths[n], (earned[n] - of_return[0]) / of_return[1]
        torch.testing.assert_close(batch.facts[EARNED][n, :length], earned[n])
        for s in range(length - 2):
            a, z, k = steps.action_NSA[n, s] / 1.5, batch.facts[IN_PLAN][n, s], int(batch.facts[LEVEL][n, s])
            plan = kept[k].sqrt() * torch.cat([x[s + 1], x[s + 2]]) + (1 - kept[k]).sqrt() * z
            change = (x[s + 1] - x[s] - of_change[0]) / of_change[1]
            drafted = torch.cat([x[s + 1] - x[s], r[s + 1 : s + 2] - r[s : s + 1]])
            given = torch.cat([plan, x[s], r[s : s + 1], torch.tensor([k / 4])])
            d = r[s] - policy.aim(x[s])[0]
            totals["draft"].append((policy.drafter(torch.cat([x[s], r[s : s + 1]])) - drafted).square().mean())
            totals["noise"].append((policy.denoiser(given) - z).square().mean())
            totals["inverse"].append((policy.between(torch.cat([x[s], change])) - a).square().mean())
            totals["judge"].append((policy.judge(torch.cat([x[s], a]))[0] - r[s]).square())
            totals["aim"].append((0.7 if d >= 0 else 0.3) * d**2)
    means = {name: torch.stack(values).mean() for name, values in totals.items()}
    expected = torch.stack(list(means.values())).sum()
    torch.testing.assert_close(found.value, expected, rtol=1e-4, atol=1e-5)
    for own, theirs in zip(gradient(found.value, policy), gradient(expected, policy), strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-3, atol=1e-5)
    for name, value in means.items():
        assert found.metrics[f"plan/{name}"] == pytest.approx(value.item(), rel=1e-4)


def played(spec, temperature=1.0):
    policy = spec.load(1)
    noise = torch.from_numpy(policy.noise(np.random.default_rng(3), 5).numpy())
    return policy, noise, policy.propose(SEEN, noise, torch.full((5,), temperature))


def test_a_plan_is_drafted_and_refined_by_the_chain_s_last_steps():
    policy, noise, (found, score) = played(SPEC)
    z = noise.reshape(15, 2, 6)
    o = SEEN.repeat_interleave(3, 0)
    aimed = policy.aim(o)
    at, plan = torch.cat([o, aimed], -1), []
    for _ in range(2):
        at = at + policy.drafter(at)
        plan.append(at[:, :3])
    x = torch.cat(plan, -1)
    kept = [math.exp(-(0.1 * k / 4 + 9.95 * (k / 4) ** 2)) for k in range(5)]
    for k in (2, 1):
        beta = 1 - kept[k] / kept[k - 1]
        e = policy.denoiser(torch.cat([x, o, aimed, torch.full((15, 1), k / 4)], -1))
        x = (x - beta / math.sqrt(1 - kept[k]) * e) / math.sqrt(1 - beta)
        x = x + math.sqrt(beta * (1 - kept[k - 1]) / (1 - kept[k])) * z[:, k - 1]
    share = policy.between(torch.cat([o, x[:, :3] - o], -1)).clamp(-1, 1)
    torch.testing.assert_close(found, share.reshape(5, 3, 2), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(score, policy.judge(torch.cat([o, share], -1)).reshape(5, 3), rtol=1e-4, atol=1e-5)
    best = 1.5 * found[torch.arange(5), score.argmax(-1)]
    torch.testing.assert_close(policy.draw(SEEN, noise, torch.ones(5))[0], best)


def test_at_a_temperature_of_0_the_same_plans_are_compared_in_every_state_and_whatever_is_drawn():
    policy, noise, (found, score) = played(SPEC, temperature=0.0)
    other = policy.propose(SEEN, torch.randn_like(noise), torch.zeros(5))
    torch.testing.assert_close((found, score), other)
    assert (found[:, 0] - found[:, 1]).abs().max() > 1e-3, "there is something to choose"
    always = policy.always_PX.reshape(1, -1).expand(5, -1)
    torch.testing.assert_close((found, score), policy.propose(SEEN, always, torch.ones(5)))


def test_no_refinement_is_the_draft_alone():
    policy, _, (found, _) = played(replace(SPEC, refine=0))
    torch.testing.assert_close(found[:, 0], found[:, 2])
    torch.testing.assert_close(1.5 * found[:, 0], policy.centre(SEEN))


def test_plans_of_one_point_are_found_from_noise():
    """The chain, with the exact noise of plans that are all alike, ends there."""
    policy = replace(SPEC, draft=False, refine=4).load(1)
    goal = torch.linspace(-1, 1, 6)

    def exact(x, seen, earned, step):
        kept = policy.kept_K[int(step[0, 0]) - 1]
        return (x - kept.sqrt() * goal) / (1 - kept).sqrt()

    policy.__dict__["noise_in"] = exact  # before the class's own
    noise = torch.randn(5, 4, 6, generator=torch.Generator().manual_seed(1))
    ended = policy.denoised(noise[:, 0], SEEN, torch.zeros(5, 1), noise)
    torch.testing.assert_close(ended, goal.expand(5, 6), rtol=1e-4, atol=1e-4)


def test_an_expectile_of_a_half_aims_at_the_mean_return():
    learner = learned(replace(SPEC, hidden=(), normalize=False), expectile=0.5)
    batch = episodes()
    seen = torch.zeros_like(batch.decisions.observation_NSO)
    batch = replace(batch, decisions=replace(batch.decisions, observation_NSO=seen))
    for _ in range(400):
        learner.step(learner.prepare(batch))
    update, models = learner.update, learner.models
    facts = update.survey(models, update.prepare(models, batch)[0])[0].facts
    mean = learner.policy.returns((facts["weight"] * facts[EARNED]).sum().reshape(1, 1))
    torch.testing.assert_close(learner.policy.aim(seen[0, :1]), mean, atol=0.05, rtol=0)


def test_bad_settings_of_plans_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"DraftedPlan\.horizon is 0; it is at least 1"):
        replace(SPEC, horizon=0)
    with pytest.raises(ValueError, match=r"DraftedPlan\.refine is 5; it is how many of the chain's last steps"):
        replace(SPEC, refine=5)
    with pytest.raises(ValueError, match=r"takes all 4 steps of the chain, and DraftedPlan\.refine is 2: set refine=4"):
        replace(SPEC, draft=False)
    with pytest.raises(ValueError, match=r"PlanLearning has gamma 1\.5"):
        PlanLearning(gamma=1.5)
    Gaussian(observations=3, actions=2).load(0).save(tmp_path / "other")
    with pytest.raises(ValueError, match="holds no DraftedPlan policy, for its configuration says nothing of bound"):
        replace(SPEC, model=str(tmp_path / "other")).load(0)
    SPEC.load(0).save(tmp_path / "own")
    with pytest.raises(ValueError, match=r"saved with a chain of 4 steps, and policy\.chain is 100: set the same"):
        DraftedPlan(**SIZES, model=str(tmp_path / "own")).load(0)
    run = recipes.load("trajectory_diffuser")
    with pytest.raises(ValueError, match="learns from whole episodes, and Recordings draws single steps"):
        compose.check(replace(run, store=recipes.load("iql").store, update=PlanLearning()))


def test_a_run_of_plans_goes_on_to_the_same_bits(tmp_path, single_thread):
    small = {"prompts_per_step": "4", "update.optimization.minibatches": "2", "held_out.tasks.size": "2"}
    run = recipes.load("trajectory_diffuser", small)
    trainer = Trainer(run)
    trainer.advance(), trainer.advance()
    resumed = Trainer(run, trainer.save(tmp_path / "saved", {}))
    for _ in range(2):
        found = trainer.advance()[0]
        assert deterministic(resumed.advance()[0]) == deterministic(found)
    assert math.isfinite(found["loss"]) and found["plan/steps"] == pytest.approx(192 / 200)
    assert trainer.evaluate().metrics()["eval/score"] < 0
    trainer.close(), resumed.close()
