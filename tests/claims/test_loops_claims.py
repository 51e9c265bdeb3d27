"""Arms of the claims on loops and on an inspector differ in one thing, and their verdicts follow the rule."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import inspector
import loops
import loops_page
import tuned_page

from gimbal.runtime.compose import check


def test_arms_of_loops_differ_in_when_a_plan_is_given_up():
    flows = {arm: loops.workflow(arm) for arm in loops.ARMS}
    routed = flows[loops.ROUTED]
    assert all(replace(flow, replan=routed.replan, tries=routed.tries) == routed for flow in flows.values())
    assert len({(flow.replan, flow.tries) for flow in flows.values()}) == len(flows) == 5
    assert {other for others in loops.COMPARED.values() for other in others} == {*flows} - {loops.ROUTED}


def test_seeds_have_tasks_of_their_own_whose_first_sum_has_two_digits():
    first, second = ([task.id for task in loops.tasks(seed)] for seed in (0, 1))
    assert len({*first, *second}) == 2 * loops.TASKS
    for task in loops.tasks(0):
        one, sign, other = task.columns["metadata"]["expression"].split()[:3]
        assert 10 <= int(one) + int(sign + other) <= 99


def test_a_verdict_on_loops_takes_all_seeds():
    runs = [
        {"arm": arm, "seed": seed, "solved": 0.5 + 0.01 * seed + 0.3 * (arm == loops.ROUTED)}
        for arm in loops.ARMS
        for seed in loops.SEEDS
    ]
    assert loops_page.rule(runs).count("| yes |") == 4
    assert (
        loops_page.rule([run for run in runs if (run["arm"], run["seed"]) != (loops.ROUTED, 4)]).count("missing") == 4
    )
    recorded = [(run["arm"], run["seed"]) for run in campaign.load(loops.RECORD)]
    assert len(set(recorded)) == len(recorded) <= len(loops.ARMS) * len(loops.SEEDS)


def test_arms_of_inspector_differ_in_the_reward():
    residual, outcome = (inspector.run_of(arm, 5e-4, 3) for arm in inspector.TUNED.arms)
    assert residual.workflow.residual and not outcome.workflow.residual
    assert replace(residual, workflow=outcome.workflow) == outcome
    assert not residual.held_out.workflow.residual and residual.held_out == outcome.held_out
    check(residual)
    check(outcome)
    assert tuned_page.rule(inspector, []).count("seeds are missing") == 1
    recorded = [(run["arm"], run["rate"], run["seed"]) for run in campaign.load(inspector.RECORD)]
    assert len(set(recorded)) == len(recorded) <= inspector.TUNED.whole
