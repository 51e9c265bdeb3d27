"""Effective rank, its growth, and the bonus: written out, at the limits, and through the recipe's baselines."""

import dataclasses
import math

import pytest
import torch

from gimbal.advantages.shapings.rank_shaped import RankShaped
from gimbal.ops.effective_rank import effective_rank
from gimbal.records import TrainBatch

H = 6
KNOWN = {"stride": 2, "rank": 3.0, "velocity": 0.5, "acceleration": -0.2}


def batch(seed=0, length=(11, 8, 4, 3, 0)):
    g = torch.Generator().manual_seed(seed)
    mask_NS = torch.arange(12) < torch.tensor(length)[:, None] + 1
    mask_NS[:, 2] = False
    return TrainBatch(
        mask_NS=mask_NS,
        hidden_NSH=torch.randn(len(length), 12, H, generator=g, dtype=torch.float64),
        advantage_NS=torch.randn(len(length), 12, generator=g, dtype=torch.float64) * mask_NS,
    )


def entropy_rank(z_KH):
    s = torch.linalg.svdvals(z_KH - z_KH.mean(0))
    p = s / s.sum()
    return float(torch.special.entr(p).sum().exp())


def written_out(z_LH, stride):
    ranks = [entropy_rank(z_LH[: stop + 1]) for stop in range(stride, len(z_LH), stride)]
    velocity = [r - sum(ranks[:j]) / j for j, r in enumerate(ranks) if j]
    growth = [b - a for a, b in zip(velocity, velocity[1:], strict=False)]  # noqa: RUF007
    return entropy_rank(z_LH), sum(velocity) / max(1, len(velocity)), sum(growth) / max(1, len(growth))


def test_isotropic_noise_fills_all_directions_and_a_line_one():
    g = torch.Generator().manual_seed(0)
    wide = effective_rank(torch.randn(1, 4000, 8, generator=g))
    tall = effective_rank(torch.randn(1, 9, 4000, generator=g))
    assert float(wide) == pytest.approx(8, rel=1e-2) and float(tall) == pytest.approx(8, rel=1e-2)
    line = torch.randn(1, 10, 1, generator=g) * torch.randn(1, 1, 8, generator=g)
    assert float(effective_rank(line)) == pytest.approx(1, abs=1e-6)
    assert float(effective_rank(torch.full((1, 10, 8), 0.3))) == 1
    assert float(effective_rank(torch.randn(1, 1, 8, generator=g))) == 1
    assert effective_rank(torch.zeros(0, 3, 8)).shape == (0,)


def test_measures_written_out():
    b = batch()
    found = RankShaped(stride=2)._measures(b.hidden_NSH, b.mask_NS)
    for n in (0, 1, 2):
        expected = written_out(b.hidden_NSH[n][b.mask_NS[n]], 2)
        assert [float(x_N[n]) for x_N in found.values()] == pytest.approx(expected, abs=1e-9)
    assert all((x_N[3:] == 0).all() for x_N in found.values())


def test_bonus_written_out():
    b, part = batch(), RankShaped(**KNOWN, cap=1.5)
    shaped_NS = part(b)
    for n in (0, 1, 2):
        found = written_out(b.hidden_NSH[n][b.mask_NS[n]], 2)
        base = (3.0, 0.5, -0.2)
        rank, velocity, growth = (min(max((x - y) / (abs(y) + 1e-6), -5), 5) for x, y in zip(found, base, strict=True))
        gate = 1 / (1 + math.exp(-2 * growth))
        bonus = max(0, gate * math.tanh(rank) + (1 - gate) * math.tanh(velocity))
        expected_S = b.advantage_NS[n] + (b.advantage_NS[n].abs() / 1.5).clamp(max=bonus)
        torch.testing.assert_close(shaped_NS[n], expected_S, atol=1e-9, rtol=0)
    assert torch.equal(shaped_NS[3:], b.advantage_NS[3:]), "too short to tell"
    assert (shaped_NS != b.advantage_NS).any()


def test_no_bonus_or_no_advantage_or_cap_inf_reduces_to_the_advantage():
    b = batch()
    far = RankShaped(stride=2, rank=1e6, velocity=1e6, acceleration=1e6)
    assert torch.equal(far(b), b.advantage_NS)
    assert torch.equal(RankShaped(**KNOWN, cap=math.inf)(b), b.advantage_NS)
    assert torch.equal(RankShaped(stride=2)(b), b.advantage_NS), "no baseline yet"
    calm = dataclasses.replace(b, advantage_NS=torch.zeros_like(b.advantage_NS))
    assert (RankShaped(**KNOWN)(calm) == 0).all()


def test_gain_0_weighs_both_alike():
    b = batch()
    one, other = (dict(KNOWN, gain=0.0, acceleration=x) for x in (-9.0, 9.0))
    assert torch.equal(RankShaped(**one)(b), RankShaped(**other)(b))
    assert not torch.equal(RankShaped(**(one | {"gain": 2.0}))(b), RankShaped(**(other | {"gain": 2.0}))(b))


def test_signs_stay_and_bonuses_are_bounded():
    b = batch()
    shaped_NS = RankShaped(**(KNOWN | {"rank": 1e-3}))(b)
    assert (shaped_NS.sign() == b.advantage_NS.sign()).all()
    assert ((shaped_NS - b.advantage_NS) >= 0).all()
    assert ((shaped_NS - b.advantage_NS) <= b.advantage_NS.abs() / 2 + 1e-12).all()


def test_report_is_the_mean_of_long_rollouts_or_what_was_known():
    b = batch()
    report = RankShaped(stride=2).report(b)
    ranks = [written_out(b.hidden_NSH[n][b.mask_NS[n]], 2)[0] for n in (0, 1, 2)]
    assert report["effective_rank/rank"] == pytest.approx(sum(ranks) / 3)
    short = RankShaped(stride=40, rank=2.0, velocity=0.1, acceleration=0.3).report(b)
    assert list(short.values()) == [2.0, 0.1, 0.3]


def test_the_baselines_keep_a_share_of_themselves():
    part, b = RankShaped(stride=2, rank=2.0, velocity=1.0, decay=0.75), batch()
    report = part.report(b)
    state = part.update(part.init(), report)
    assert state["rank"] == pytest.approx(1.5 + report["effective_rank/rank"] / 4)
    assert state["acceleration"] == pytest.approx(report["effective_rank/acceleration"] / 4)
    assert part.recalling(state).velocity == state["velocity"] != 1
    constant = RankShaped(**KNOWN, decay=1.0)
    assert constant.recalling(constant.update(constant.init(), report)) == constant
    latest = RankShaped(**KNOWN, decay=0.0)
    assert latest.update(latest.init(), report) == {name.partition("/")[2]: x for name, x in report.items()}


def test_refusals():
    with pytest.raises(ValueError, match="at least 1"):
        RankShaped(stride=0)
    with pytest.raises(ValueError, match="share kept"):
        RankShaped(decay=1.5)
