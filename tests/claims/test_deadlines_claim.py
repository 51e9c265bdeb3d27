"""The arms of the claim on deadlines see the same frames, and what is recorded can be had again."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import deadlines

from gimbal.runtime.simulate.streams import DeadlineBatch, FirstCome


def test_the_rule_is_all_that_differs():
    assert deadlines.rule_of(deadlines.FIRST, 8) == FirstCome(most=8)
    assert deadlines.rule_of(deadlines.HOPEFUL, 8) == FirstCome(most=8, hopeful=True)
    assert deadlines.rule_of(deadlines.DEADLINE, 0) == DeadlineBatch()
    assert len(deadlines.viewers(20)) == 20 and {one.deadline_s for one in deadlines.viewers(4)} == {0.06, 0.3}


def test_batches_are_tuned_on_a_seed_of_their_own():
    runs = campaign.load(deadlines.RECORD)
    assert [len(values) for arm in deadlines.ASKED.values() for values in deadlines.own(runs, arm[1]).values()] == [
        5
    ] * 18
    assert deadlines.best(runs, deadlines.DEADLINE) == 0
    for run in runs:
        assert run["seed"] in (*deadlines.SEEDS, deadlines.TUNING) and 0 < run["in time"] <= 1
    assert [len(jobs) for jobs in deadlines.left(runs)] == [0, 0], "whole"


def test_a_recorded_run_can_be_had_again(monkeypatch):
    runs = campaign.load(deadlines.RECORD)
    (recorded,) = [run for run in runs if (run["arm"], run["seed"]) == (deadlines.DEADLINE, 2)]
    monkeypatch.setattr(deadlines, "VIEWERS", (20,))
    monkeypatch.setattr(deadlines, "FIGURES", ("in time", "in time, 20", "frames a second", "wasted"))
    assert deadlines.measure((deadlines.DEADLINE, 0, 2))["in time, 20"] == recorded["in time, 20"]
