"""The verdict on a constraint kept follows from the record, and the arms are what they are named after."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import safe
import safe_page

pytest.importorskip("gymnasium")

from gimbal.recipes import function


def runs(iou=0.9, cost=0.0, earned=70.0):
    """Five seeds of each arm; those of FISOR with these figures."""
    figures = {"fisor": (earned, cost), "bc": (2.0, 0.0), "iql": (128.0, 84.0), "penalty": (55.0, 0.0)}
    return [
        {"arm": arm, "seed": seed, "return": gain + seed / 10, "cost": out, "cpu": 1.0}
        | ({"iou": iou} if arm == "fisor" else {})
        for arm, (gain, out) in figures.items()
        for seed in safe.SEEDS
    ]


@pytest.mark.parametrize(
    ("changes", "failing"),
    [
        ({}, []),
        ({"iou": 0.79}, ["IoU above .8 in each seed"]),
        ({"cost": 1.5}, ["the worst cost of *fisor* at most 1"]),
        ({"cost": 84.0}, ["the worst cost of *fisor* at most 1", "cost: *iql* above *fisor*"]),
        ({"earned": 55.1}, ["return: *fisor* above *penalty*"]),
        ({"earned": 1.0}, ["return: *fisor* above *bc*", "return: *fisor* above *penalty*"]),
    ],
)
def test_each_part_of_the_rule_can_fail(changes, failing):
    found = safe.conditions(runs(**changes))
    assert [name for name, holds in found.items() if not holds] == failing
    assert ("**holds**" in safe_page.verdict(runs(**changes))) == (not failing)


def test_until_all_is_there_nothing_is_decided():
    short = [run for run in runs() if (run["arm"], run["seed"]) != ("bc", safe.SEEDS[-1])]
    assert safe.conditions(short)["return: *fisor* above *bc*"] is None and "open" in safe_page.verdict(short)
    assert safe.left(short) == [[("bc", safe.SEEDS[-1])]]


def test_what_is_measured_is_the_recipe_and_the_price_is_paid_where_it_is_due():
    run = safe.run_of("fisor", 6)
    assert run.update == function("fisor")().update and run.steps == function("fisor")().steps and run.seed == 6
    assert safe.run_of("iql", 6).update == safe.run_of("penalty", 6).update
    for paid, episode in zip(safe.priced().episodes[:8], safe.recording(safe.DATA).episodes, strict=False):
        assert paid.reward_S.tolist() == pytest.approx((episode.reward_S - 5 * episode.cost_S[1:]).tolist())
    recorded = campaign.load(safe.RECORD)
    assert {(run["arm"], run["seed"]) for run in recorded} <= {(arm, seed) for arm in safe.ARMS for seed in safe.SEEDS}
