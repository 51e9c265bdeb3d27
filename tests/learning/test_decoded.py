"""GoRL's policy: without a flow it is PPO bit for bit; with one, noise is recorded and learned from, and its actions are done."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gimbal import recipes
from gimbal.policies.best_of import BestOf
from gimbal.policies.decoded import Decoded
from gimbal.policies.gaussian import Gaussian
from gimbal.report.files import deterministic
from gimbal.runtime import compose
from gimbal.runtime.local import Trainer
from gimbal.runtime.playing import recorded

SMALL = {
    "held_out": None,
    "engine.slots": "2",
    "prompts_per_step": "2",
    "max_staleness": "0",
    "sampling.max_length": "30",
}
SEEN = torch.randn(50, 3, generator=torch.Generator().manual_seed(4))
DRAWN = torch.randn(50, 1, generator=torch.Generator().manual_seed(5)), torch.ones(50)


def flow_in(directory):
    """A flow that leads away from where it begins."""
    proposals = BestOf(observations=3, actions=1, bound=2.0, hidden=(16,)).load(3)
    with torch.no_grad():
        for weight in proposals.flow.parameters():
            weight.mul_(2)
    proposals.save(directory)
    return proposals.flow


def leads(flow, seen, noise):
    """Ten Euler steps, taken here."""
    x = noise
    for step in range(10):
        x = x + flow.net(torch.cat([seen, x, torch.full_like(x[:, :1], step / 10)], -1)) / 10
    return 2 * x.clamp(-1, 1)


def test_noise_is_drawn_and_judged_and_the_flow_s_action_is_done(tmp_path):
    flow = flow_in(tmp_path)
    policy = Decoded(observations=3, actions=1, bound=2.0, flow=str(tmp_path)).load(1)
    alone = Gaussian(observations=3, actions=1).load(1)
    noise, logprob = policy.draw(SEEN, *DRAWN)
    assert torch.equal(noise, alone.draw(SEEN, *DRAWN)[0]) and torch.equal(logprob, alone.draw(SEEN, *DRAWN)[1])
    assert torch.equal(policy.assess(SEEN, noise, 1.0)[0], alone.assess(SEEN, noise, 1.0)[0])
    with torch.no_grad():
        torch.testing.assert_close(policy.done(SEEN, noise), leads(flow, SEEN, noise))
        assert (policy.done(SEEN, noise) - noise).abs().mean() > 0.05


def test_a_flow_that_leads_nowhere_does_the_noise_in_units_of_the_bound(tmp_path):
    flow_in(tmp_path)
    policy = Decoded(observations=3, actions=1, bound=2.0, flow=str(tmp_path)).load(1)
    with torch.no_grad():
        for weight in policy.flow.parameters():
            weight.zero_()
    noise = policy.draw(SEEN, *DRAWN)[0]
    assert torch.equal(policy.done(SEEN, noise), 2 * noise.clamp(-1, 1))


def test_without_a_flow_it_is_ppo_bit_for_bit(single_thread):
    run = recipes.load("pendulum", SMALL)
    found = []
    for policy in (run.policy, Decoded(observations=3, actions=1, bound=2.0)):
        trainer = Trainer(replace(run, policy=policy))
        trainer.begin()
        for _ in range(2):
            metrics = trainer.advance()[0]
        found.append((list(trainer.learner.policy.parameters()), metrics["reward/mean"]))
        trainer.close()
    (plain, earned), (decoded, also) = found
    assert earned == also and all(torch.equal(one, other) for one, other in zip(plain, decoded, strict=True))


def run_on(directory, **changes):
    return recipes.load("gorl", {**SMALL, "policy.flow": str(directory), **changes})


def test_the_environment_was_given_what_the_flow_made_of_the_recorded_noise(tmp_path):
    flow_in(tmp_path)
    run = run_on(tmp_path)
    policy = run.policy.load(1)
    drawn = recorded(run, policy, episodes=2, seed=0, temperature=1.0)
    import gymnasium

    for episode in drawn.episodes:
        world = gymnasium.make("Pendulum-v1")
        world.reset(seed=episode.seed)
        assert episode.action_SA.std() > 0.1 and np.abs(episode.action_SA).max() <= 2
        for action, reward in zip(episode.action_SA, episode.reward_S, strict=True):
            assert world.step(action)[1] == pytest.approx(float(reward), rel=1e-4, abs=1e-4)


def test_the_flow_never_moves_and_comes_back_and_a_run_goes_on_to_the_same_bits(tmp_path, single_thread):
    flow = flow_in(tmp_path / "flow")
    # Segments of 7 steps: a checkpoint lies in the middle of an episode.
    run = run_on(tmp_path / "flow", **{"engine.segment": "7"})
    trainer = Trainer(run)
    trainer.begin()
    trainer.advance()
    resumed = Trainer(run, trainer.save(tmp_path / "saved", {}))
    for _ in range(2):
        found = trainer.advance()[0]
        assert deterministic(resumed.advance()[0]) == deterministic(found)
    policy = trainer.learner.policy
    assert all(torch.equal(own, x) for own, x in zip(policy.flow.parameters(), flow.parameters(), strict=True))
    assert math.isfinite(found["loss"]) and found["kl/ref"] > 0
    policy.save(tmp_path / "again")
    (tmp_path / "flow").rename(tmp_path / "gone")
    again = Decoded(observations=3, actions=1, bound=2.0, model=str(tmp_path / "again")).load(5)
    with torch.no_grad():
        assert torch.equal(again.done(SEEN, DRAWN[0]), policy.done(SEEN, DRAWN[0]))
    trainer.close(), resumed.close()


def test_bad_settings_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Decoded has flow_steps 0, which is at least 1"):
        Decoded(observations=3, actions=1, flow_steps=0)
    Gaussian(observations=3, actions=1).load(0).save(tmp_path)
    with pytest.raises(
        ValueError, match=r"holds no flow: policy\.flow is a directory that a run of idql or expo saved"
    ):
        Decoded(observations=3, actions=1, flow=str(tmp_path)).load(0)
    flow_in(Path(tmp_path) / "flow")
    with pytest.raises(ValueError, match=r"has bound 2\.0, and in this environment it must be 1\.0: train one"):
        Decoded(observations=3, actions=1, flow=str(tmp_path / "flow")).load(0)
    with pytest.raises(ValueError, match="records the noise that a flow begins from, and TD3 learns from actions"):
        compose.check(replace(recipes.load("td3"), policy=Decoded(observations=3, actions=1, bound=2.0)))
