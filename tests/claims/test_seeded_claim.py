"""The verdicts on seeding and on splits at turns follow from their records, and arms differ in one thing."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import seeded
import tuned_page
import turn_splits
import turn_splits_page


def test_one_thing_at_a_time_differs_between_arms():
    allocated, seed = (seeded.run_of(arm, 3e-4, 3) for arm in seeded.TUNED.arms)
    assert allocated == replace(seed, budget=allocated.budget) and seed.budget.inside == allocated.budget
    plain, even, trace = (turn_splits.run_of(arm, 3) for arm in turn_splits.ARMS)
    assert plain == replace(trace, workflow=plain.workflow) and trace.workflow.inside == plain.workflow
    assert even == replace(trace, workflow=replace(trace.workflow, head=even.workflow.head))


def test_the_verdict_on_seeding_follows_the_rule():
    def runs(apart):
        rows = [(arm, rate, 100, -rate) for arm in seeded.TUNED.arms for rate in seeded.TUNED.rates]
        rows += [
            (arm, 1e-4, seed, 0.3 + 0.01 * seed + apart * (arm == "seeded"))
            for arm in seeded.TUNED.arms
            for seed in range(5)
        ]
        return [dict(zip(("arm", "rate", "seed", "pass"), row, strict=True)) for row in rows]

    assert "| yes |" in tuned_page.rule(seeded, runs(0.1)) and "| undecided |" in tuned_page.rule(seeded, runs(0.0))
    assert "seeds are missing" in tuned_page.rule(seeded, runs(0.1)[:-1])
    assert [len(part) for part in seeded.TUNED.left([])] == [4, 0]


def test_the_verdict_on_splits_follows_the_rule():
    def runs(**mixed):
        return [
            {"arm": arm, "seed": seed, "mixed": value + 0.01 * seed, "per_1000": 10 * value}
            for arm, value in mixed.items()
            for seed in range(5)
        ]

    assert turn_splits_page.rule(runs(plain=0.3, even=0.4, trace=0.6)).count("| yes |") == 3
    alike = turn_splits_page.rule(runs(plain=0.6, even=0.6, trace=0.6))
    assert alike.count("| undecided |") == 2 and alike.count("| no |") == 1  # half as many again is a bar
    assert turn_splits_page.rule(runs(plain=0.3, even=0.4)).count("seeds are missing") == 3
    assert len(next(turn_splits.left(runs(plain=0.3)))) == 10


def test_seeding_acted_in_each_recorded_run():
    for run in campaign.load(seeded.RECORD):
        assert (run["seeded"] > 0) == (run["arm"] == "seeded"), run
        assert run["solved"] <= run["seeded"]
