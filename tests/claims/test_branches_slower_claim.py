"""The verdicts on branches at a slower rate follow from the record, and arms differ in one thing."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import branches
import branches_slower as claim
import campaign

pytest.importorskip("diffusers")


def runs_of(**ends):
    """Three arms of reward -1 and coverage .4 at both readings, but for these: ARM=(reward, coverage)."""
    rows = []
    for arm in claim.ARMS:
        reward, coverage = ends.get(arm, (-1.0, 0.4))
        for seed in claim.SEEDS:
            figures = {"reward": reward + 0.01 * seed, "coverage": coverage + 0.001 * seed}
            rows.append({"arm": arm, "seed": seed, **figures, **{f"{name}_early": x for name, x in figures.items()}})
    return rows


@pytest.mark.parametrize("reading", claim.READINGS)
@pytest.mark.parametrize(
    ("branched", "said"),
    [
        ((-0.5, 0.4), "yes"),
        ((-0.5, 0.3), "trades coverage"),
        ((-1.0, 0.6), "not decided"),
        ((-2.0, 0.4), "no: less reward"),
    ],
)
def test_verdicts_follow_the_rule(reading, branched, said):
    assert claim.verdict(runs_of(branches=branched), "branches help", reading) == said
    assert claim.verdict(runs_of(branches=branched)[:-1], "branches help", reading) == "seeds are missing"


def test_all_arms_have_one_rate_and_differ_in_one_thing():
    paths, flat, branched = (branches.run_of(arm, claim.RATE, 5) for arm in claim.ARMS)
    assert {run.optimization.learning_rate for run in (paths, flat, branched)} == {3e-4}
    assert flat == replace(paths, workflow=flat.workflow) and branched == replace(flat, advantage=branched.advantage)
    assert not set(claim.SEEDS) & {branches.TUNED.seed, *branches.TUNED.seeds}, "seeds that nobody has seen"
    assert [len(jobs) for jobs in claim.left([])] == [15]


def test_each_recorded_run_shared_steps_where_it_branches():
    for run in campaign.load(claim.RECORD):
        assert (run["shared"] > 0) == (run["arm"] != "paths"), run
        assert run["steps"] >= claim.STEPS
