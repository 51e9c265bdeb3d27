"""A linear model of what comes next: what it computes, written out; what it recovers; a correction that reads it; limiting cases."""

from dataclasses import replace

import pytest
import torch

from gimbal.policies.control import unread
from gimbal.policies.frozen_base import Residual
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.koopman import Koopman, KoopmanModel

SEEN = torch.randn(40, 3, generator=torch.Generator().manual_seed(1))
DONE = torch.rand(40, 2, generator=torch.Generator().manual_seed(2)) * 2 - 1
AFTER = torch.randn(40, 3, generator=torch.Generator().manual_seed(3))
SIZES = {"observations": 3, "actions": 2, "hidden": (8,), "bound": 1.5}


def model(spec=Koopman(features=5, hidden=(8,)), seed=0):
    """One whose A and B are not those that it begins with."""
    made = KoopmanModel(3, 2, spec, seed)
    with torch.no_grad():
        for weight in made.change.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(5)))
    return made


def test_it_is_its_equation():
    made = model()
    weight_ZI = made.change[0].weight
    a_ZZ, b_ZA = torch.eye(8) + weight_ZI[:, :8], weight_ZI[:, 8:]
    lifted, after = (torch.cat([x, made.phi(x)], -1) for x in (SEEN, AFTER))
    ahead = lifted @ a_ZZ.T + DONE @ b_ZA.T
    torch.testing.assert_close(made.step(made.lift(SEEN), DONE), ahead)
    torch.testing.assert_close(made.error(SEEN, DONE, AFTER), ((ahead - after) ** 2).sum(-1) / 8)


def test_the_gradient_of_its_error_is_that_of_finite_differences_and_reaches_the_lift_of_both_observations():
    made = model().double()
    seen, done, after = SEEN.double(), DONE.double(), AFTER.double()

    def loss(*weights):
        named = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(Errors(made), named, (seen, done, after)).mean()

    class Errors(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, *x):
            lift = [torch.cat([o, self.inner.phi(o)], -1) for o in (x[0], x[2])]
            change = self.inner.change(torch.cat([lift[0], x[1]], -1))
            return (lift[0] + change - lift[1]).square().mean(-1)

    names = [f"inner.{name}" for name, _ in made.named_parameters()]
    weights = [weight.detach().clone().requires_grad_() for weight in made.parameters()]
    assert torch.autograd.gradcheck(loss, weights, eps=1e-6, atol=1e-6)
    found = torch.autograd.grad(loss(*weights), weights)
    made.float()
    own = torch.autograd.grad(made.error(SEEN, DONE, AFTER).mean(), list(made.parameters()))
    for mine, reference in zip(own, found, strict=True):
        torch.testing.assert_close(mine, reference.float(), atol=1e-5, rtol=1e-4)


def test_of_a_linear_system_the_identity_lift_recovers_both_matrices():
    f = torch.tensor([[0.9, 0.2, 0.0], [-0.2, 0.9, 0.1], [0.0, 0.0, 0.5]])
    g = torch.tensor([[0.0, 1.0], [0.5, 0.0], [1.0, -1.0]])
    made, after = KoopmanModel(3, 2, Koopman(features=0), 0), SEEN @ f.T + DONE @ g.T
    optimizer = torch.optim.Adam(made.parameters(), lr=0.05)
    for _ in range(600):
        optimizer.zero_grad()
        made.error(SEEN, DONE, after).mean().backward()
        optimizer.step()
    weight = made.change[0].weight.detach()
    torch.testing.assert_close(torch.eye(3) + weight[:, :3], f, atol=1e-3, rtol=0)
    torch.testing.assert_close(weight[:, 3:], g, atol=1e-3, rtol=0)


@pytest.mark.parametrize("spec", [Koopman(), Koopman(features=0), Koopman(features=0, predict=(8,))])
def test_at_first_nothing_changes(spec):
    made = KoopmanModel(3, 2, spec, 0)
    assert torch.equal(made.step(made.lift(SEEN), DONE), made.lift(SEEN))


def test_a_network_in_place_of_the_matrices_is_not_linear():
    made = model(Koopman(features=0, predict=(8,)))
    one, other = made.step(SEEN, DONE), made.step(SEEN, -DONE)
    assert not torch.allclose((one + other) / 2, made.step(SEEN, 0 * DONE), atol=1e-4)
    linear = model(Koopman(features=0))
    torch.testing.assert_close(
        (linear.step(SEEN, DONE) + linear.step(SEEN, -DONE)) / 2, linear.step(SEEN, 0 * DONE), atol=1e-5, rtol=0
    )


def corrected(tmp_path, foresight, **changes):
    Gaussian(observations=3, actions=2, hidden=(8,)).load(3).save(tmp_path / "base")
    spec = Residual(**SIZES, base=str(tmp_path / "base"), foresight=foresight, **changes)
    policy = spec.load(1)
    with torch.no_grad():
        for weight in policy.correction.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)))
    return spec, policy


def test_the_correction_reads_where_the_base_would_lead(tmp_path):
    _, policy = corrected(tmp_path, Koopman(features=5, hidden=(8,)))
    with torch.no_grad():
        policy.foresight.change[0].weight.normal_()
        base = policy.of_base(SEEN)
        ahead = policy.foresight.step(policy.foresight.lift(SEEN), base / 1.5)
        expected = (base + 1.5 * policy.correction(ahead).tanh()).clamp(-1.5, 1.5)
    torch.testing.assert_close(policy.mode(SEEN), expected)
    assert not torch.allclose(expected, base)


def test_where_nothing_is_predicted_it_is_a_correction_by_the_lift_of_the_observation_alone(tmp_path):
    """A = 1 and B = 0: with the identity for a lift, an ordinary correction that is blind to the base's action."""
    _, ahead = corrected(tmp_path, Koopman(features=0))
    _, plain = corrected(tmp_path, None)
    with torch.no_grad():
        plain.correction[0].weight[:, 3:] = 0
        for own, other in zip(plain.correction.parameters(), ahead.correction.parameters(), strict=True):
            own[..., : other.shape[-1]] = other
    torch.testing.assert_close(plain.mode(SEEN), ahead.mode(SEEN))


def test_the_policy_s_gradient_reaches_the_model(tmp_path):
    _, policy = corrected(tmp_path, Koopman(features=5, hidden=(8,)))
    policy.mode(SEEN).sum().backward()
    assert all(float(weight.grad.abs().max()) > 0 for weight in policy.foresight.parameters())
    assert all(weight.grad is None for weight in policy.base.parameters())


def test_it_comes_back_with_its_model_and_nothing_is_said_to_have_no_effect(tmp_path):
    spec, policy = corrected(tmp_path, Koopman(features=5, hidden=(8,)))
    policy.save(tmp_path / "saved")
    again = replace(spec, foresight=None, model=str(tmp_path / "saved"))
    assert torch.equal(again.load(9).mode(SEEN), policy.mode(SEEN))
    assert unread(spec.at(tmp_path / "saved")) == {"base": {"kind": "Gaussian", **policy.base.config}}
    assert "foresight" in unread(again)


def test_settings_without_meaning_are_refused():
    for wrong in ({"features": -1}, {"weight": -0.5}, {"weight": float("nan")}):
        with pytest.raises(ValueError, match="both are 0 or above"):
            Koopman(**wrong)
