"""The verdict on two modes follows from the record, and the arms are what they are named after."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import two_modes
import two_modes_page

ORDINARY = {"better": 0.95, "above": 0.5, "between": 0.05}


def runs(**changed):
    """Tuning and five seeds of each arm; ``arm__figure`` replaces one."""
    figures = {arm: {**ORDINARY, "between": 1.0 if arm == "td3_bc strong" else 0.05} for arm in two_modes.TUNED.arms}
    for name, value in changed.items():
        arm, _, figure = name.partition("__")
        figures[arm.replace("_strong", " strong")][figure] = value
    rest = {"worse": 0.0, "imitation/error": 0.1, "cpu": 1.0}
    return [
        {"arm": arm, "rate": rate, "seed": seed, **own, **rest, "reward": rate, "distance": rate}
        for arm, own in figures.items()
        for rate in two_modes.TUNED.rates
        for seed in (two_modes.TUNED.seed, *two_modes.TUNED.seeds)
        if seed == two_modes.TUNED.seed or rate == (3e-4 if arm == "flow" else 3e-3)
    ]


@pytest.mark.parametrize(
    ("changed", "failing"),
    [
        ({}, ""),
        ({"fql__better": 0.9}, "*fql*:"),
        ({"flow__above": 0.39}, "*flow*:"),
        ({"flow__above": 0.61}, "*flow*:"),
        ({"td3_bc_strong__between": 0.5}, "*td3_bc strong*:"),
        ({"fql_strong__between": 0.2}, "*fql strong*:"),
    ],
)
def test_each_line_of_the_rule_can_fail(changed, failing):
    found = [name for name, holds in two_modes.conditions(runs(**changed)).items() if not holds]
    assert (len(found) == 1 and found[0].startswith(failing)) if failing else not found
    assert ("**holds**" in two_modes_page.verdict(runs(**changed))) == (not failing)


def test_rates_are_chosen_on_the_tuning_seed_and_the_flows_by_its_distance():
    assert [two_modes.TUNED.best(runs(), arm) for arm in ("fql", "flow")] == [3e-3, 3e-4]
    first = list(two_modes.TUNED.left([]))
    assert len(first[0]) == 15 and not first[1]
    lacking = [run for run in runs() if (run["arm"], run["seed"]) != ("flow", 3)]
    assert list(two_modes.TUNED.left(lacking)) == [[], [("flow", 3e-4, 3)]]
    assert two_modes.conditions(lacking)["*flow*: .4 to .6 above 0"] is None and "open" in two_modes_page.verdict(
        lacking
    )


def test_the_arms_and_their_data():
    seen, action = two_modes.data(0)
    assert abs(float(np.mean(action > 0)) - 0.5) < 0.02 and float(np.abs(action).max()) <= 1
    assert two_modes.reward(np.array([0.7, -0.7, 0.0])).tolist() == pytest.approx([1.0, 0.5, 0.0], abs=1e-6)
    made = {arm: two_modes.learner_of(arm, 1e-3, 0) for arm in two_modes.TUNED.arms}
    assert {arm: learner.update.alpha for arm, learner in made.items() if "td3" not in arm} == {
        "fql": 0.1,
        "fql strong": 10.0,
        "flow": 10.0,
    }
    assert [made[arm].update.imitation.alpha for arm in ("td3_bc", "td3_bc strong")] == [2.5, 0.05]
    first = made["fql"]
    metrics = first.step(first.prepare(two_modes.batch_of(seen[:8], action[:8], 0)))
    assert metrics["q/target"] == pytest.approx(float(two_modes.reward(action[:8]).mean()), rel=1e-4)
    assert two_modes.played(first, "flow", 0).shape == two_modes.played(first, "fql", 0).shape == (2000,)


def test_the_record_is_of_this_claim():
    recorded = campaign.load(two_modes.RECORD)
    assert {run["arm"] for run in recorded} <= set(two_modes.TUNED.arms)
