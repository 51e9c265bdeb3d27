"""What corrects a frozen policy: it begins as that, stays near it, and that never moves and comes back."""

import math
from dataclasses import replace

import pytest
import torch
from test_td3_and_dqn import PLAIN, real

from gimbal import recipes
from gimbal.critics.actions import ActionValues
from gimbal.learning.learner import Learner
from gimbal.learning.updates.td3 import TD3, foreseen
from gimbal.policies.deterministic import Deterministic
from gimbal.policies.frozen_base import Residual
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.greedy import Greedy
from gimbal.policies.koopman import Koopman
from gimbal.policies.one_step import OneStep
from gimbal.policies.squashed import SquashedGaussian
from gimbal.report.files import deterministic
from gimbal.runtime.local import Trainer

SIZES = {"observations": 3, "actions": 2, "hidden": (8,)}
CRITIC = ActionValues(**SIZES, bound=1.5)
SEEN = torch.randn(50, 3, generator=torch.Generator().manual_seed(4))
STILL = torch.zeros(50, 2), torch.zeros(50)
BASES = [
    Gaussian(**SIZES),
    SquashedGaussian(**SIZES, bound=1.5, normalize=True),
    Deterministic(**SIZES, bound=1.5),
    OneStep(**SIZES, bound=1.5),
]


def test_a_damaged_base_is_called_damaged(tmp_path):
    base_in(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(ValueError, match="cannot be read, so it is missing or damaged"):
        Residual(**SIZES, bound=1.5, base=str(tmp_path)).load()


def base_in(directory, spec=BASES[2], seed=7):
    """A policy that was saved there, far enough from nothing."""
    policy = spec.load(seed)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.mul_(3)
    if policy.normalizer is not None:
        policy.normalizer.observe(5 * SEEN + 1)
    policy.save(directory)
    return policy, Residual(**SIZES, bound=1.5, base=str(directory))


def shaken(policy):
    with torch.no_grad():
        for weight in policy.correction.parameters():
            weight.add_(2 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
    return policy


@pytest.mark.parametrize("spec", BASES, ids=lambda spec: type(spec).__name__)
def test_the_first_policy_is_the_base(tmp_path, spec):
    base, residual = base_in(tmp_path, spec)
    mode = base.draw(SEEN, *STILL)[0].clamp(-1.5, 1.5)
    assert mode.abs().max() > 0.05 and torch.equal(residual.load(1).mode(SEEN), mode)
    assert torch.equal(residual.load(1).draw(SEEN, *STILL)[0], mode)


def test_a_correction_stays_within_its_reach_and_the_bound(tmp_path):
    base, residual = base_in(tmp_path)
    mode = base.mode(SEEN)
    for reach in (0.1, 0.5, 2.0):
        moved = shaken(replace(residual, reach=reach).load(1)).mode(SEEN)
        apart = (moved - mode).abs()
        assert apart.max() <= 1.5 * reach + 1e-6 and apart.max() > 1.4 * min(reach, 1.0)
        assert moved.abs().max() <= 1.5
    near = shaken(replace(residual, reach=1e-6).load(1)).mode(SEEN)
    torch.testing.assert_close(near, mode, atol=1e-5, rtol=0)


def test_without_a_base_0_is_corrected():
    policy = Residual(**SIZES, bound=1.5).load(1)
    assert not policy.mode(SEEN).any()
    found, still = shaken(policy).mode(SEEN), torch.zeros(50, 2)
    torch.testing.assert_close(found, 1.5 * policy.correction(torch.cat([SEEN, still], -1)).tanh())


def test_a_correction_beyond_the_bound_can_come_back(tmp_path):
    _, residual = base_in(tmp_path)
    policy = shaken(replace(residual, reach=0.3).load(1))
    with torch.no_grad():
        policy.correction[-1].weight.zero_()
        policy.correction[-1].bias.fill_(0.5)
    mode = policy.mode(SEEN)
    assert bool((mode == 1.5).any())
    mode[mode == 1.5].sum().backward()
    assert policy.correction[-1].bias.grad.abs().max() > 0


def learned(spec, moves=range(1, 12, 2), **changes):
    learner = Learner(spec.load(1), TD3(critic=CRITIC, optimization=PLAIN, gamma=0.9, **changes), seed=0)
    for move in moves:
        learner.step(learner.prepare(real(move)))
    return learner


def test_the_base_never_moves_and_comes_back_without_its_directory(tmp_path):
    base, residual = base_in(tmp_path / "base", BASES[1])
    learner = learned(replace(residual, normalize=True))
    own = learner.policy.base.state_dict()
    assert all(torch.equal(own[name], weight) for name, weight in base.state_dict().items())
    assert not torch.equal(learner.policy.mode(SEEN), base.draw(SEEN, *STILL)[0])
    for follower in (learner.models["target_policy"].base.state_dict(), own):
        assert all(torch.equal(follower[name], weight) for name, weight in base.state_dict().items())
    learner.policy.save(tmp_path / "saved")
    (tmp_path / "base").rename(tmp_path / "gone")
    again = Residual(**SIZES, model=str(tmp_path / "saved")).load(5)
    assert torch.equal(again.mode(SEEN), learner.policy.mode(SEEN))


def test_the_critic_moves_alone_until_the_burn_in_is_over(tmp_path):
    base, residual = base_in(tmp_path)
    still, moved = (learned(residual, moves=moves, burn_in=6) for moves in ((1, 3, 5), (1, 3, 5, 7)))
    assert torch.equal(still.policy.mode(SEEN), base.mode(SEEN))
    assert not torch.equal(moved.policy.mode(SEEN), base.mode(SEEN))
    fresh = CRITIC.load(0).state_dict()
    assert any(not torch.equal(fresh[name], x) for name, x in still.models["critic"].state_dict().items())


def test_no_burn_in_is_td3_bit_for_bit():
    one, other = (learned(BASES[2], **change) for change in ({}, {"burn_in": 0}))
    assert torch.equal(one.policy.mode(SEEN), other.policy.mode(SEEN))


def test_bases_that_do_not_fit_are_refused(tmp_path):
    _, residual = base_in(tmp_path / "good")
    with pytest.raises(ValueError, match="has actions 2, and in this environment it must be 1: train one here"):
        replace(residual, actions=1).load(0)
    with pytest.raises(ValueError, match=r"policy\.base must be a directory that a control run saved"):
        replace(residual, base=str(tmp_path / "none")).load(0)
    Greedy(observations=3, actions=2, hidden=(8,)).load(0).save(tmp_path / "choices")
    with pytest.raises(ValueError, match=r"holds no policy that can be corrected: policy\.base names one of Gaussian"):
        replace(residual, base=str(tmp_path / "choices")).load(0)
    with pytest.raises(ValueError, match=r"policy.reach is -1.0; it is the largest correction"):
        replace(residual, reach=-1.0)
    with pytest.raises(ValueError, match=r"TD3.burn_in is -1; it is how many times"):
        TD3(critic=CRITIC, burn_in=-1)


def test_its_sizes_are_the_environment_s():
    run = recipes.load("residual", {"tasks.environment": "MountainCarContinuous-v0"})
    assert (run.policy.observations, run.update.critic.observations, run.policy.bound) == (2, 2, 1.0)


def test_a_run_on_a_base_goes_on_to_the_same_bits(tmp_path, single_thread):
    Gaussian(observations=3, actions=1).load(3).save(tmp_path / "base")
    small = {"held_out": None, "store.learning_starts": 0, "store.minibatch": 16, "update.burn_in": 15}
    run = recipes.load("residual", {**small, "policy.base": str(tmp_path / "base")})
    trainer = Trainer(run)
    trainer.advance(), trainer.advance()
    resumed = Trainer(run, trainer.save(tmp_path / "saved", {}))
    for _ in range(3):
        found = trainer.advance()[0]
        assert deterministic(resumed.advance()[0]) == deterministic(found)
    assert 0 < found["residual/size"] < 1 and math.isfinite(found["loss"])
    trainer.close(), resumed.close()


def test_the_model_of_what_comes_next_learns_alone_in_the_burn_in_and_with_the_correction_after_it(tmp_path):
    base, residual = base_in(tmp_path)
    ahead = replace(residual, foresight=Koopman(features=2, hidden=(4,)))
    still, moved = (learned(ahead, moves=moves, burn_in=6) for moves in ((1, 3, 5), (1, 3, 5, 7, 9, 11)))
    first = ahead.load(1)
    assert torch.equal(still.policy.mode(SEEN), base.mode(SEEN))
    assert not torch.equal(still.policy.foresight.change[0].weight, first.foresight.change[0].weight)
    assert torch.equal(still.policy.correction[0].weight, first.correction[0].weight)
    batch = real(7)
    steps = batch.decisions
    off = moved.policy.foresight.error(steps.observation_NSO[:, 0], steps.action_NSA[:, 0] / 1.5, steps.final_NO)
    assert float(off.mean()) == pytest.approx(float(foreseen(moved.policy, batch).mean()))
    assert float(off.mean()) < float(
        first.foresight.error(steps.observation_NSO[:, 0], steps.action_NSA[:, 0] / 1.5, steps.final_NO).mean()
    )
    assert not torch.equal(moved.policy.mode(SEEN), base.mode(SEEN))


def test_the_policy_s_loss_is_that_of_the_correction_plus_that_of_the_model(tmp_path):
    _, residual = base_in(tmp_path)
    metrics = []
    for weight in (0.0, 2.0):
        spec = replace(residual, foresight=Koopman(features=2, hidden=(4,), weight=weight))
        learner = Learner(spec.load(1), TD3(critic=CRITIC, optimization=PLAIN, gamma=0.9), seed=0)
        metrics.append(learner.step(learner.prepare(real(1))))
    assert metrics[0]["foresight/error"] == pytest.approx(metrics[1]["foresight/error"])
    assert metrics[1]["loss"] - metrics[0]["loss"] == pytest.approx(2 * metrics[0]["foresight/error"], rel=1e-4)
