"""The arms of the claim on critics that are carried over differ in the critics alone, and its verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import carried
import tuned_page

pytest.importorskip("gymnasium")


def runs(**ends):
    found = []
    for arm in carried.ARMS:
        for rate, seed in [(at, 100) for at in carried.TUNED.rates] + [(1e-3, n) for n in range(5)]:
            end = ends.get(arm.replace(" ", "_"), -900.0) + seed
            figures = {"soon": end, "end": end, "return": -abs(rate - 1e-3)}
            found.append({"arm": arm, "rate": rate, "seed": seed, "before": -500.0, "cpu": 1.0} | figures)
    return found


def test_verdicts_on_carried_critics_follow_the_rule():
    assert tuned_page.rule(carried, runs(iql_carried=-300.0)).count("| yes |") == 2
    assert tuned_page.rule(carried, runs(td3_fresh=-300.0)).count("| no: below |") == 2
    assert tuned_page.rule(carried, runs()).count("| undecided |") == 4


@pytest.mark.parametrize("name", ["iql", "td3"])
def test_the_arms_differ_in_the_critics_alone(tmp_path, monkeypatch, single_thread, name):
    monkeypatch.setattr(carried, "MOVES", 250)
    first = carried.offline(name, 4)
    place, _ = carried.trained(replace(first, store=replace(first.store, moves=2)), tmp_path)
    with_them, fresh = (carried.online(f"{name} {critics}", 3e-3, 4, place) for critics in ("carried", "fresh"))
    assert with_them.update.begin_from == str(place) and not fresh.update.begin_from
    assert replace(fresh, update=with_them.update) == with_them and with_them.policy.model == str(place / "model")
    assert (with_them.update.optimization.learning_rate, with_them.seed) == (3e-3, 4)


def test_both_arms_of_a_method_begin_where_the_other_does():
    recorded = campaign.load(carried.RECORD)
    before = {(run["arm"].split()[0], run["seed"]): run["before"] for run in recorded}
    assert all(run["before"] == before[run["arm"].split()[0], run["seed"]] for run in recorded)
