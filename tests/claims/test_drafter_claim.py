"""The verdicts on a drafter follow from the record, and its arms differ in nothing but the drafter's rate."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import drafter
import drafter_page
import pytest

from gimbal.engines.drafting.draft_model import DraftModel
from gimbal.runtime.compose import check


def test_arms_differ_in_the_rate_of_the_drafter(monkeypatch):
    monkeypatch.setattr(drafter, "warmed", lambda: "gimbal-tiny-agent")
    stays, follows = (drafter.run_of(arm, 3) for arm in drafter.RATES)
    check(stays), check(follows)
    own = stays.engine.drafter
    assert isinstance(own, DraftModel) and own.learning_rate == 0 and own.warmup == 0
    assert follows == replace(stays, engine=replace(stays.engine, drafter=replace(own, learning_rate=1e-3)))


def test_verdicts_follow_the_rule():
    def runs(stays, follows):
        ends = {"stays": stays, "follows": follows}
        return [
            {"arm": arm, "seed": seed, "acceptance": {"first": 0.6, "last": last + 0.01 * seed}}
            for arm, last in ends.items()
            for seed in drafter.SEEDS
        ]

    assert drafter_page.verdict(runs(0.3, 0.6)).count("**yes**") == 2
    assert drafter_page.verdict(runs(0.6, 0.6)).count("**not shown**") == 3
    assert drafter_page.verdict(runs(0.3, 0.4)).count("**yes**") == 3
    assert "missing" in drafter_page.verdict(runs(0.3, 0.6)[1:])
    # By hand: differences -.1, -.1, -.1, -.1, -.6 have mean -.2, deviation .2236, t(4) 2.776.
    mean, low, high = drafter_page.interval([-0.1] * 4 + [-0.6])
    assert (mean, low, high) == pytest.approx((-0.2, -0.4776, 0.0776), abs=1e-3)


def test_the_policy_moved_in_each_recorded_run():
    for run in campaign.load(drafter.RECORD):
        assert run["reward/sevens/mean"]["last"] > run["reward/sevens/mean"]["first"], run
