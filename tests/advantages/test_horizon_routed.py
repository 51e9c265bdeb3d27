"""Advantages of several horizons, weighed by the critic's error."""

import math
from dataclasses import replace

import pytest
import torch

from gimbal.advantages.estimators.gae import GAE
from gimbal.advantages.estimators.horizon_routed import HorizonRouted
from gimbal.records import TrainBatch

G = torch.Generator().manual_seed(0)


def batch(members=3, n=4, s=5):
    def draw(*more):
        return torch.randn(n, s, *more, generator=G, dtype=torch.float64)

    return TrainBatch(
        mask_NS=torch.arange(s) < torch.tensor([5, 3, 1, 4])[:, None],
        reward_NS=draw(),
        value_NSM=draw(members),
        facts={f"bootstrap/{m}": draw()[:, 0] for m in range(members)},
    )


def gae_NS(b, m, gamma):
    single = replace(b, value_NS=b.value_NSM[..., m], bootstrap_N=b.facts[f"bootstrap/{m}"])
    return GAE(gamma=gamma, lam=0.95)(single)


@pytest.mark.parametrize("temperature", [0.0, 10.0, math.inf])
def test_one_discount_is_gae(temperature):
    b = batch(members=1)
    found_NS = HorizonRouted(gammas=(0.9,), temperature=temperature)(b)
    torch.testing.assert_close(found_NS, gae_NS(b, 0, 0.9), atol=1e-12, rtol=0)


def test_infinite_temperature_is_the_mean_and_0_the_smallest_error():
    b, gammas = batch(), (0.5, 0.9, 1.0)
    all_NSM = torch.stack([gae_NS(b, m, gamma) for m, gamma in enumerate(gammas)], -1)
    mean_NS, least_NS = (HorizonRouted(gammas=gammas, temperature=x)(b) for x in (math.inf, 0.0))
    torch.testing.assert_close(mean_NS, all_NSM.mean(-1), atol=1e-12, rtol=0)
    torch.testing.assert_close(least_NS.abs(), all_NSM.abs().amin(-1), atol=1e-12, rtol=0)


def test_by_hand_the_easy_horizon_is_trusted():
    """A reward two decisions ahead: the short horizon sees a quarter of it, so its error is small and its weight large."""
    b = TrainBatch(
        mask_NS=torch.ones(1, 3, dtype=torch.bool),
        reward_NS=torch.tensor([[0.0, 0.0, 8.0]]),
        value_NSM=torch.zeros(1, 3, 2),
    )
    part = HorizonRouted(gammas=(0.5, 1.0), lam=1.0, temperature=6.0)
    odds = math.exp(-(2 - 8) / 6)  # errors 2 and 8 at the first decision
    assert part(b)[0, 0].item() == pytest.approx((odds * 2 + 8) / (1 + odds), abs=1e-5)
    assert part(b)[0, 2].item() == pytest.approx(8.0)
    second = math.exp(-(4 - 8) / 6)
    expected = (odds / (1 + odds) + second / (1 + second) + 0.5) / 3
    assert part.report(b)["route/shortest"] == pytest.approx(expected, abs=1e-6)


def test_what_cannot_be_is_said():
    with pytest.raises(ValueError, match="heads=2"):
        HorizonRouted(gammas=(0.5, 1.0))(batch())
    for wrong in ({"gammas": ()}, {"gammas": (1.5,)}, {"lam": 2.0}, {"temperature": -1.0}):
        with pytest.raises(ValueError, match="HorizonRouted"):
            HorizonRouted(**wrong)
