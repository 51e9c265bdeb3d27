"""What the claim about failing agents counts as lost, and what it says by its rule."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "claims"))

import failing
import failing_agent


def run(arm: str, seed: int, score: float, **fields) -> dict:
    usual = {"dispatched": 100, "drawn": 80, "errors": 14, "timeouts": 6, "others": 0}
    return {"arm": arm, "seed": seed, "score": score, "noted": {"raise": 8, "kill": 6, "hang": 6}, **usual, **fields}


def test_an_episode_that_nobody_counts_is_lost():
    assert failing.whole(run("failing", 1, 0.5))
    assert not failing.whole(run("failing", 1, 0.5, drawn=79))
    assert not failing.whole(run("failing", 1, 0.5, errors=13, drawn=81))  # a killed one passed for an episode
    assert not failing.whole(run("failing", 1, 0.5, others=1, drawn=79))


def test_the_verdict_follows_the_rule():
    clean = [run("clean", seed, 0.5 + seed / 100) for seed in failing.SEEDS]
    as_good = [run("failing", seed, 0.52) for seed in failing.SEEDS]
    assert "nothing is decided" in failing.section(clean)
    assert "nothing is lost, and the median of the failing runs is within the range" in failing.section(clean + as_good)
    assert "failing runs is not within the range" in failing.section(clean + [{**row, "score": 0.4} for row in as_good])
    others = [*clean, *as_good[::-1]]  # pairs are of one seed, whatever the order of the record
    assert "lower in 3 of 5 seeds, by 0.010" in failing.section(others)
    assert "1 runs do not account" in failing.section([*clean, {**as_good[0], "drawn": 1}, *as_good[1:]])


def test_arms_differ_in_the_agent_alone():
    clean, other = (failing.run_of(failing.Job(arm, 1)) for arm in failing.ARMS)
    assert clean.workflow.program.endswith(":clean") and other.workflow.program.endswith(":failing")
    assert clean.held_out == other.held_out and clean.held_out.workflow == clean.workflow
    assert round(sum(failing_agent.SHARES.values()), 9) == 0.2
