"""Arms of the claim on delegation differ in the workflow and the mark that names it, and its verdict follows the rule."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import delegated
import tuned_page

from gimbal.runtime.compose import check

MODEL = "gimbal-tiny-memory"


def test_arms_differ_in_the_workflow_and_the_mark():
    one, other = (delegated.run_of(arm, 1e-3, 3, MODEL) for arm in delegated.TUNED.arms)
    assert (one.tasks.mark, other.tasks.mark) == ("!", ":") == (one.held_out.tasks.mark, other.held_out.tasks.mark)
    unmarked = replace(other, workflow=one.workflow, tasks=replace(other.tasks, mark="!"), held_out=one.held_out)
    assert unmarked == one and one.workflow.inside.tool == other.workflow.tool
    for index in range(20):
        asked, alone = one.tasks[index], other.tasks[index]
        assert (asked.answer, asked.columns) == (alone.answer, alone.columns)
        assert asked.prompt.replace("!", ":") == alone.prompt
    check(one)
    check(other)


def test_held_out_questions_are_others_and_pages_grow():
    run = delegated.run_of("alone", 1e-3, 3, MODEL)
    sizes = [delegated.held_out("alone", name).tasks.facts for name in delegated.PAGES]
    assert sizes == sorted(sizes) and sizes[0] == run.tasks.facts == delegated.first().tasks.facts
    assert run.held_out.tasks.seed != run.tasks.seed
    # No row is cut: two pages of two characters a fact and an end, and what an agent alone says between them.
    assert 2 * (2 * sizes[-1] + 1) + len("A?.A1C?.C5.") < run.sampling.max_length


def test_a_verdict_takes_all_seeds():
    tuned, figures = delegated.TUNED, ("same", "longer", "lost")
    runs = []
    for arm in tuned.arms:
        better = 0.4 * (arm == "delegated")
        runs += [{"arm": arm, "rate": rate, "seed": 100, "same": -rate} for rate in tuned.rates]
        runs += [
            {"arm": arm, "rate": tuned.rates[0], "seed": seed, **dict.fromkeys(figures, 0.3 + 0.01 * seed + better)}
            for seed in tuned.seeds
        ]
    assert tuned_page.rule(delegated, runs).count("| yes |") == len(delegated.COMPARED)
    without = [run for run in runs if (run["arm"], run["seed"]) != ("delegated", 4)]
    assert tuned_page.rule(delegated, without).count("seeds are missing") == len(delegated.COMPARED)


def test_no_run_is_recorded_twice():
    recorded = [(run["arm"], run["rate"], run["seed"]) for run in campaign.load(delegated.RECORD)]
    assert len(set(recorded)) == len(recorded) <= delegated.TUNED.whole
