"""The arms of the claim on the hypergrid differ as they say, its verdicts follow the record, and overlaps are exact."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import flows
import tuned_page

from gimbal.dataflow.replay.once import Once
from gimbal.environments import hypergrid
from gimbal.objectives import EntropyBonus, Reinforce
from gimbal.runtime.compose import check


def test_arms_differ_in_their_data_or_their_objective():
    flow, fresh, *bonus = (flows.run_of(arm, 1e-2, 3) for arm in flows.TUNED.arms)
    assert flow.max_staleness == 4 and flow.ahead == "full" and flow.store.window == 8
    assert fresh == replace(flow, store=Once(), max_staleness=0)
    for run, coef in zip(bonus, flows.BONUS.values(), strict=True):
        assert run == replace(fresh, tasks=run.tasks, objective=Reinforce(), regularisers=(EntropyBonus(coef=coef),))
        assert run.tasks.environment.endswith(":Hypergrid")
    for run in (flow, fresh, *bonus):
        check(run)


def test_verdicts_follow_the_rule():
    def runs(**overlaps):
        rows = [(arm, rate, 100, rate) for arm in flows.TUNED.arms for rate in flows.TUNED.rates]
        rows += [
            (arm, 3e-2, seed, overlaps.get(arm, 0.3) + 0.01 * seed) for arm in flows.TUNED.arms for seed in range(5)
        ]
        return [dict(zip(("arm", "rate", "seed", "overlap"), row, strict=True)) for row in rows]

    assert tuned_page.rule(flows, runs(flow=0.95)).count("| yes |") == 3
    assert tuned_page.rule(flows, runs(flow=0.95, fresh=0.99)).count("| yes |") == 4
    assert tuned_page.rule(flows, runs()).count("| undecided |") == 4
    assert "so balance draws" in flows.bar(runs(flow=0.9)) and "not shown" in flows.bar(runs(flow=0.87))
    assert "seeds are missing" in flows.bar(runs()[: -5 * 5])


def test_the_probabilities_are_those_of_the_policy():
    """At the first weights every action is as likely as any other, to a few parts in a hundred."""
    policy = flows.run_of("flow", 1e-2, 0).policy.load(0)
    probability_KA = flows.probabilities(policy)
    assert probability_KA == pytest.approx(1 / 3, abs=0.02) and probability_KA.sum(1) == pytest.approx(1, abs=1e-6)
    assert hypergrid.ends_of(probability_KA)[0] == pytest.approx(1 / 3, abs=0.02)


def test_each_recorded_run_had_the_data_that_its_arm_says():
    for run in campaign.load(flows.RECORD):
        assert run["oldest"] == (12 if run["arm"] == "flow" else 0), run
        assert (run["replayed"] > 0) == (run["arm"] == "flow")
