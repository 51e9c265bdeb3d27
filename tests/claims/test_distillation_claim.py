"""The arms of the claim on distillation differ in what grades them, and its record shows a teacher where there is one."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import distillation
import tuned_page

from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.distillation.opd import opd
from gimbal.runtime.compose import check


def test_arms_differ_in_what_grades_them():
    sampled, exact, plain, alike = (distillation.run_of((arm, 1e-4, 3)) for arm in distillation.TUNED.arms)
    assert exact == replace(sampled, objective=exact.objective, correction=None)
    assert alike == replace(sampled, advantage=grpo().advantage, reference=None, correction=None)
    assert (sampled.advantage, sampled.reference, sampled.sampling) == (
        opd().advantage,
        opd().reference,
        plain.sampling,
    )
    assert plain == replace(grpo(), optimization=plain.optimization, held_out=None, steps=1000, seed=3, threads=1)
    for run in (sampled, exact, plain, alike):
        check(run)


def test_verdicts_follow_the_rule():
    def runs(**means):
        rows = [(arm, rate, 200, rate) for arm in distillation.TUNED.arms for rate in distillation.TUNED.rates]
        rows += [
            (arm, 1e-3, seed, means.get(arm, 0.1) + 0.001 * seed)
            for arm in distillation.TUNED.arms
            for seed in range(5)
        ]
        return [dict(zip(("arm", "rate", "seed", "mean"), row, strict=True)) for row in rows]

    assert tuned_page.rule(distillation, runs(sampled=0.2)).count("| yes |") == 2
    assert tuned_page.rule(distillation, runs(exact=0.2)).count("| yes |") == 1
    assert tuned_page.rule(distillation, runs()).count("| undecided |") == 3


def test_only_arms_with_a_teacher_record_how_far_it_is():
    for run in campaign.load(distillation.RECORD):
        assert (run["kl_first"] is None) == run["arm"].startswith("grpo") and len(run["marks"]) == 5, run
