"""Log-ratios, KL estimators and effective sample size."""

import math

import pytest
import torch

from gimbal import ops


def test_log_ratios_are_clamped_and_in_float32():
    new = torch.tensor([0.0, 1000.0, -1000.0, 0.5], dtype=torch.bfloat16)
    log_N = ops.log_ratio(new, torch.zeros(4, dtype=torch.bfloat16))
    assert log_N.dtype == torch.float32 and log_N.tolist() == [0, 20, -20, 0.5]
    assert torch.isfinite(ops.ratio(new, torch.zeros(4)).square()).all()
    assert ops.ratio(torch.tensor(math.log(3.0)), torch.tensor(math.log(2.0))).item() == pytest.approx(1.5)


def test_kl_estimators_by_hand():
    new, old = torch.tensor(0.0, dtype=torch.float64), torch.tensor(math.log(2.0), dtype=torch.float64)
    assert ops.k1(new, old).item() == pytest.approx(-math.log(2))
    assert ops.k2(new, old).item() == pytest.approx(math.log(2) ** 2 / 2)
    assert ops.k3(new, old).item() == pytest.approx(2 - 1 - math.log(2))


def test_k1_and_k3_are_unbiased_for_the_kl_of_whom_they_sample():
    """Exactly, by enumerating a softmax of five; k2 is not, and only k1 may be negative."""
    g = torch.Generator().manual_seed(3)
    new, old = (torch.randn(5, generator=g, dtype=torch.float64).log_softmax(-1) for _ in range(2))
    p = new.exp()
    kl = (p * (new - old)).sum()
    torch.testing.assert_close((p * ops.k1(new, old)).sum(), kl, atol=1e-12, rtol=0)
    torch.testing.assert_close((p * ops.k3(new, old)).sum(), kl, atol=1e-12, rtol=0)
    assert ((p * ops.k2(new, old)).sum() - kl).abs() > 1e-3
    assert (ops.k3(new, old) >= 0).all() and (ops.k2(new, old) >= 0).all() and (ops.k1(new, old) < 0).any()


def test_effective_sample_share():
    mask = torch.tensor([True, True, True, True, False])
    assert ops.effective_sample_share(torch.tensor([7.0, 7.0, 7.0, 7.0, 99.0]), mask) == 1
    one_of_four = torch.tensor([0.0, -1000.0, -1000.0, -1000.0, 0.0])
    assert ops.effective_sample_share(one_of_four, mask).item() == pytest.approx(0.25)
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0, 1.0])
    assert ops.effective_sample_share(weights.log() + 500, mask).item() == pytest.approx(100 / (4 * 30))
    assert ops.effective_sample_share(weights, torch.zeros_like(mask)) == 1
