"""The arms of the claim on pushes differ in who pushes and at what price, and its verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import pushed
import tuned_page

pytest.importorskip("gymnasium")


def runs(**ends):
    found = []
    for arm in pushed.TUNED.arms:
        own = {"arm": arm, "cpu": 1.0}
        found += [own | {"rate": at, "seed": 100, "return": -abs(at - 3e-3)} for at in pushed.TUNED.rates]
        found += [own | {"rate": 3e-3, "seed": n, "return": ends.get(arm, -900.0) + n} for n in range(5)]
    return found


def test_verdicts_on_pushes_follow_the_rule():
    assert tuned_page.rule(pushed, runs(bounded=-100.0)).count("| yes |") == 2
    assert tuned_page.rule(pushed, runs(bounded=-100.0, free=-100.0)).count("| undecided |") == 1


def test_the_arms_differ_in_who_pushes_and_what_it_costs():
    made = {arm: pushed.run_of(arm, 1e-3, 4) for arm in pushed.TUNED.arms}
    bounded, free = made["bounded"], made["free"]
    assert free.update.attenuation == 0 and not free.update.controllers and bounded.update.controllers
    same = {"attenuation": 0.3, "controllers": bounded.update.controllers}
    assert replace(free, update=replace(free.update, **same)) == bounded
    assert "reach=0," in made["plain"].tasks.environment and not made["plain"].update.controllers
    tasks = bounded.tasks
    assert all(replace(run, tasks=tasks, update=bounded.update) == bounded for run in made.values())


def test_who_is_bounded_pushes_and_is_held_to_its_price_in_every_recorded_run():
    for run in campaign.load(pushed.RECORD):
        assert run["push"] > 0.05, "noise alone has a size"
        assert run["return"] == pytest.approx(sum(run[kind] for kind in pushed.KINDS) / 3, abs=0.1)
