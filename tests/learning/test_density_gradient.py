"""CDSA against sums taken here, its limiting cases, and that its base is another run's, never moves and comes back."""

import math
from dataclasses import replace

import pytest
import torch
from test_offline_control import batch_of, gradient, losses, parts, prepared
from torch import nn

from gimbal import recipes
from gimbal.dataflow.replay.transitions import FRESH, MOVE
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.density_gradient import LEVEL, OF_ACTION, OF_STATE, DensityGradient
from gimbal.policies.deterministic import Deterministic
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.toward_data import TowardData
from gimbal.report.files import deterministic
from gimbal.runtime import compose
from gimbal.runtime.local import Trainer

SIZES = {"observations": 3, "actions": 2, "hidden": (8,)}
SPEC = TowardData(**SIZES, bound=1.5)
PLAIN = Optimization(learning_rate=0.01, max_grad_norm=math.inf)
SEEN = torch.randn(50, 3, generator=torch.Generator().manual_seed(4))
DRAWN = torch.randn(50, 2, generator=torch.Generator().manual_seed(5)), torch.ones(50)


class Given(nn.Module):
    """In place of a network: what the test says."""

    def __init__(self, rule):
        super().__init__()
        self.rule = rule

    def forward(self, given, x, noise):
        return self.rule(given, x, noise)


def learned(spec=SPEC, **changes):
    return Learner(spec.load(1), DensityGradient(optimization=PLAIN, **changes), seed=0)


def base_in(directory, spec=Deterministic(**SIZES, bound=1.5)):
    base = spec.load(7)
    base.save(directory)
    return base, replace(SPEC, base=str(directory))


def test_cdsa_is_its_equations():
    learner = learned(least=0.02, most=0.4)
    policy, fresh = learner.policy, replace(batch_of(), facts={MOVE: torch.full((7,), FRESH)})
    learner.update.prepare(learner.models, fresh)
    batch = prepared(learner, batch_of())
    seen, action, after, *_ = parts(batch)
    mean, spread = fresh.decisions.observation_NSO[:, 0].mean(0), fresh.decisions.observation_NSO[:, 0].std(0, False)
    o, p, x = (seen - mean) / spread, (after - mean) / spread, action / 1.5
    d = (p - o - (p - o).mean(0)) / (p - o).std(0, False)
    e_a, e_o = batch.facts[OF_ACTION][:, 0], batch.facts[OF_STATE][:, 0]
    s = 0.02 * (0.4 / 0.02) ** batch.facts[LEVEL][:, 0]
    mse = nn.functional.mse_loss
    expected = (
        mse(policy.action_noise.net(torch.cat([o, x + s * e_a, s.log()], -1)), e_a)
        + mse(policy.state_noise.net(torch.cat([p + s * e_o, s.log()], -1)), e_o)
        + mse(policy.ahead(torch.cat([o, x], -1)), d)
        + mse(policy.between(torch.cat([o, d], -1)), x)
    )
    found = losses(learner, batch_of())["policy"].value
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    pairs = zip(gradient(found, policy), gradient(expected, policy), strict=True)
    for own, theirs in pairs:
        torch.testing.assert_close(own, theirs, rtol=1e-3, atol=1e-5)


def test_the_correction_is_its_equation():
    policy = replace(SPEC, action_weight=0.4, state_weight=0.7, noise=0.2, steps=2).load(1)
    policy.changes.observe(torch.tensor([[0.0, 1.0, 2.0], [1.0, 1.5, 4.0]]))
    o, x = SEEN, 0.5 * DRAWN[0].tanh()
    level = torch.full((50, 1), math.log(0.2))
    near = x
    for _ in range(2):
        near = near - 0.1 * policy.action_noise.net(torch.cat([o, near, level], -1))
    change = policy.ahead(torch.cat([o, x], -1))
    spread = torch.tensor([0.5, 0.25, 1.0])
    ahead = o + torch.tensor([0.5, 1.25, 3.0]) + spread * change
    aimed = change - 0.2 * policy.state_noise.net(torch.cat([ahead, level], -1)) / spread
    turned = policy.between(torch.cat([o, aimed], -1)) - policy.between(torch.cat([o, change], -1))
    expected = (x + 0.4 * (near - x) + 0.7 * turned).clamp(-1, 1)
    torch.testing.assert_close(policy.corrected(o, x), expected)


@pytest.mark.parametrize("spec", [Deterministic(**SIZES, bound=1.5), Gaussian(**SIZES)], ids=["fixed", "drawn"])
def test_without_weights_it_is_the_base_bit_for_bit(tmp_path, spec):
    base, own = base_in(tmp_path, spec)
    policy = replace(own, action_weight=0.0, state_weight=0.0).load(1)
    expected = base.draw(SEEN, *DRAWN)[0].clamp(-1.5, 1.5)
    torch.testing.assert_close(policy.draw(SEEN, *DRAWN)[0], expected, rtol=0, atol=2e-7)
    assert not torch.equal(own.load(1).draw(SEEN, *DRAWN)[0], expected)


def test_actions_of_a_gaussian_density_shrink_towards_their_mean():
    """One step moves them by s^2 / (s^2 + d^2) of the way to m(o): its limiting case, with the exact estimate of noise."""
    policy = replace(SPEC, action_weight=1.0, state_weight=0.0, noise=0.3, steps=1).load(1)
    mean, d = 0.3 * SEEN[:, :2].tanh(), 0.4
    policy.action_noise = Given(lambda o, x, s: s * (x - mean) / (s**2 + d**2))
    x = 0.5 * DRAWN[0].tanh()
    torch.testing.assert_close(policy.corrected(SEEN, x), x + 0.09 / (0.09 + 0.16) * (mean - x))


def test_states_ahead_are_drawn_to_where_the_data_are():
    """On o' = o + c x with exact networks the action leads to the denoised observation."""
    policy = replace(SPEC, actions=3, action_weight=0.0, state_weight=1.0, noise=0.3).load(1)
    policy.ahead, policy.between = nn.Sequential(nn.Linear(6, 3)), nn.Sequential(nn.Linear(6, 3))
    with torch.no_grad():
        for linear, slope in ((policy.ahead[0], 2.0), (policy.between[0], 0.5)):
            linear.bias.zero_()
            linear.weight.copy_(torch.cat([torch.zeros(3, 3), slope * torch.eye(3)], -1))
    policy.state_noise = Given(lambda none, p, s: p * s / (s**2 + 0.4**2))  # of states N(0, 0.4^2)
    o, x = 0.1 * SEEN, 0.1 * SEEN.flip(0).tanh()
    torch.testing.assert_close(o + 2 * policy.corrected(o, x), (o + 2 * x) * 0.16 / (0.09 + 0.16))


def test_data_of_one_action_in_each_state_are_pointed_to():
    spec = replace(SPEC, hidden=(64,), state_weight=0.0, action_weight=1.0, steps=1, normalize=False)
    learner, batch = learned(spec, least=0.3, most=0.3), batch_of()  # one level of noise
    seen, action, *_ = parts(batch)
    for _ in range(300):
        learner.step(learner.prepare(batch))
    with torch.no_grad():
        start = (action / 1.5 + 0.3 * torch.ones_like(action)).clamp(-1, 1)
        apart = (learner.policy.corrected(seen, start) - action / 1.5).abs().mean()
    assert apart < 0.3 * (start - action / 1.5).abs().mean()


def test_the_base_never_moves_and_comes_back_without_its_directory(tmp_path):
    base, spec = base_in(tmp_path / "base")
    learner = learned(spec)
    for move in range(3):
        learner.step(learner.prepare(batch_of(move)))
    own = learner.policy.base.state_dict()
    assert all(torch.equal(own[name], weight) for name, weight in base.state_dict().items())
    learner.policy.save(tmp_path / "saved")
    (tmp_path / "base").rename(tmp_path / "gone")
    again = replace(SPEC, model=str(tmp_path / "saved"), action_weight=0.0, state_weight=0.0).load(5)
    torch.testing.assert_close(again.centre(SEEN), base.mode(SEEN), rtol=0, atol=2e-7)
    assert torch.equal(replace(SPEC, model=str(tmp_path / "saved")).load(5).centre(SEEN), learner.policy.centre(SEEN))


def test_bad_settings_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"TowardData.action_weight is -0.1; it is how much of a way"):
        replace(SPEC, action_weight=-0.1)
    with pytest.raises(ValueError, match=r"TowardData has noise 0\.0, within which"):
        replace(SPEC, noise=0.0)
    with pytest.raises(ValueError, match="steps 0, at least 1"):
        replace(SPEC, steps=0)
    with pytest.raises(ValueError, match=r"DensityGradient has least 0\.6 and most 0\.5"):
        DensityGradient(least=0.6)
    base_in(tmp_path)
    with pytest.raises(ValueError, match="holds no TowardData policy, for its configuration says nothing of base"):
        replace(SPEC, model=str(tmp_path)).load(0)
    run = recipes.load("cdsa")
    with pytest.raises(ValueError, match=r"policy.noise is 0.7, and noise from 0.01 to 0.5 is learned"):
        compose.check(replace(run, policy=replace(run.policy, noise=0.7)))


def test_a_run_goes_on_to_the_same_bits(tmp_path, single_thread):
    Gaussian(observations=3, actions=1).load(3).save(tmp_path / "base")
    small = {"held_out": None, "store.moves": 4, "store.minibatch": 16, "policy.base": str(tmp_path / "base")}
    run = recipes.load("cdsa", small)
    trainer = Trainer(run)
    trainer.advance(), trainer.advance()
    resumed = Trainer(run, trainer.save(tmp_path / "saved", {}))
    for _ in range(2):
        found = trainer.advance()[0]
        assert deterministic(resumed.advance()[0]) == deterministic(found)
    assert found["correction/size"] > 0 and math.isfinite(found["loss"])
    trainer.close(), resumed.close()
