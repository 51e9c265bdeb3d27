"""What points in the plane are worth: densities, modes and coverage against sums by hand, and the shipped flow that draws them."""

import math

import made
import pytest
import torch

from gimbal.policies.paths import Paths
from gimbal.report.rollouts import picture, point
from gimbal.rewards.points import ModeNearness, PointDensity, mixture


def rollouts(x_K2):
    def paths(x_2):
        state, one = x_2.reshape(1, 1, 2, 1, 1).expand(1, 2, 2, 1, 1), torch.ones(1, 1)
        return Paths(
            state_NXD=state,
            level_NSL=torch.zeros(1, 1, 4),
            time_NS=one,
            amplitude_NS=one,
            mean_NSD=state[:, 1:],
            std_NS=one,
            label_N=torch.tensor([-1]),
            length_N=torch.tensor([1]),
            sampler="flow_sde",
            reduce="sum",
        )

    return [made.rollout(decisions=paths(x), sample=k) for k, x in enumerate(torch.as_tensor(x_K2))]


@pytest.mark.parametrize("kind", ["ring", "grid"])
def test_the_density_is_one_in_all_and_that_of_its_draws(kind):
    data = mixture(kind)
    assert len(data.place_M2) == 9 and float(data.share_M.sum()) == pytest.approx(1)
    line = torch.linspace(-6, 6, 241)
    cell_K2 = torch.cartesian_prod(line, line)
    density_K = data.log_density(cell_K2).exp()
    assert float(density_K.sum()) * 0.05**2 == pytest.approx(1, abs=1e-4)
    by_hand = sum(
        float(share) * math.exp(-float((cell_K2[777] - place).square().sum()) / (2 * 0.3**2)) / (2 * math.pi * 0.3**2)
        for share, place in zip(data.share_M, data.place_M2, strict=True)
    )
    assert float(density_K[777]) == pytest.approx(by_hand, rel=1e-4)
    torch.manual_seed(0)
    x_K2 = data.draw(20_000)
    near_K = torch.cdist(x_K2, data.place_M2).argmin(-1)
    assert near_K.bincount(minlength=9).div(len(near_K)).sub(data.share_M).abs().max() < 0.01
    assert float((x_K2 - data.place_M2[near_K]).std()) == pytest.approx(0.3, abs=0.01)


def test_one_mode_pays_one_at_its_mean_and_a_root_of_e_half_a_unit_away():
    reward = ModeNearness(modes=(0,), worth=(1.0,))
    label = torch.tensor([-1] * 3)
    assert reward.of_samples(torch.tensor([[4.0, 0.0], [4.5, 0.0], [-4.0, 0.0]]), label).tolist() == pytest.approx(
        [1.0, math.exp(-0.5), 0.0]
    )
    assert ModeNearness().of_samples(torch.zeros(1, 2), label[:1]).item() == pytest.approx(1.2), "the rare mode"
    hole = torch.tensor([[2.0, 2.0]])
    assert ModeNearness().of_samples(hole, label[:1]).item() < 0.01
    assert ModeNearness(hole=1.5).of_samples(hole, label[:1]).item() == pytest.approx(1.5, abs=0.01)
    x = torch.tensor([[3.7, 0.2]], requires_grad=True)
    reward.of_samples(x, label[:1]).sum().backward()
    assert x.grad is not None and x.grad[0, 0] > 0 > x.grad[0, 1], "it climbs towards the mode"


def test_coverage_is_the_share_of_wanted_modes_that_are_reached():
    place_M2 = mixture("ring").place_M2
    measure = PointDensity()
    assert measure.figures(rollouts(place_M2))["coverage"] == 1
    assert measure.figures(rollouts(place_M2[[0, 0, 3, 1]]))["coverage"] == 0.5
    assert measure.figures(rollouts(place_M2[[1, 2]])) == {"distance": pytest.approx(0, abs=1e-3), "coverage": 0.0}
    off = place_M2[[0] * 60 + [3]] + torch.tensor([0.0, 0.5])
    found = measure.figures(rollouts(off))
    assert found["coverage"] == 0.25 and found["distance"] == pytest.approx(0.5, abs=1e-3), "one in 61 is too few"


def test_what_is_not_a_mode_or_not_a_point_is_refused():
    with pytest.raises(ValueError, match="from 0 to 8"):
        ModeNearness(modes=(9,), worth=(1.0,))
    with pytest.raises(ValueError, match="each wanted mode of the grid once"):
        PointDensity(of="grid", modes=(1, 1))
    with pytest.raises(ValueError, match="2 numbers for 4 modes"):
        ModeNearness(worth=(1.0, 2.0))
    with pytest.raises(ValueError, match="samples of two numbers"):
        PointDensity().of_samples(torch.zeros(1, 64), torch.tensor([-1]))


def test_a_point_is_recorded_as_its_two_numbers():
    (row,) = rollouts([[1.23456, -2.0]])
    assert point(row) == [1.235, -2.0] and picture(row) is None
    assert point(made.rollout()) is None


@pytest.mark.slow
def test_the_shipped_flow_draws_the_ring():
    pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")
    from gimbal.engines.base import Request, drained
    from gimbal.engines.denoising import Denoising
    from gimbal.environments.conditions import Conditions
    from gimbal.policies.denoiser import Denoiser
    from gimbal.policies.paths import PathSampling
    from gimbal.rewards.samples import finished

    policy = Denoiser(model="gimbal-ring").load(0)
    assert policy.sample_shape == (2, 1, 1)
    engine = Denoising(slots=64).start(policy)
    engine.load(0, policy.weights())
    for n in range(256):
        sampling = PathSampling(max_length=20, sampler="ode")
        engine.submit(Request(group=n, task=Conditions()[n], sample=0, sampling=sampling, seed=1))
    x_ND = finished([item.rollout for item in drained(engine).values()])
    apart_KM = torch.cdist(x_ND, mixture("ring").place_M2)
    assert (apart_KM.amin(-1) < 0.9).float().mean() > 0.6
    share_M = apart_KM.argmin(-1).bincount(minlength=9) / 256
    assert share_M[:8].min() > 0.03 and share_M[8] < 0.1
