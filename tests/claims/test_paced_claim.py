"""The arms of the claim on PACED differ in which tasks are chosen, and its record shows the kernel at work."""

import statistics
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))
import campaign
import paced
import tuned_page

from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.dataflow.curricula.frontier import Frontier
from gimbal.runtime.compose import check


def test_arms_differ_in_which_tasks_are_chosen():
    opd, kernel = (paced.run_of((arm, 3e-4, 3)) for arm in paced.TUNED.arms)
    assert kernel == replace(opd, curriculum=Frontier(prior=0.25))
    assert len(opd.tasks) == 64 and isinstance(opd.curriculum, Epochs)
    for run in (opd, kernel):
        check(run)


def test_verdicts_follow_the_rule():
    def runs(**means):
        rows = [(arm, rate, 200, rate) for arm in paced.TUNED.arms for rate in paced.TUNED.rates]
        rows += [(arm, 3e-4, seed, means.get(arm, 0.1) + 0.001 * seed) for arm in paced.TUNED.arms for seed in range(5)]
        return [dict(zip(("arm", "rate", "seed", "mean"), row, strict=True)) for row in rows]

    assert tuned_page.rule(paced, runs(paced=0.2)).count("| yes |") == 1
    assert tuned_page.rule(paced, runs()).count("| undecided |") == 1


def test_the_kernel_chooses_what_is_within_reach():
    runs = campaign.load(paced.RECORD)
    assert len(runs) == paced.TUNED.whole and all(len(run["marks"]) == paced.MARKS for run in runs)
    within = {arm: [run["within"] for run in runs if run["arm"] == arm] for arm in paced.TUNED.arms}
    assert min(within[paced.PACED]) > statistics.fmean(within[paced.OPD]) == pytest.approx(1 / 3, abs=0.07)
