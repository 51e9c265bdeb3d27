"""The composed recipe's arms are what they are named after, and what is said of them follows from the record by the rule."""

import sys
from dataclasses import fields
from itertools import islice
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "claims"))

import composed
import composed_page
import tokens

from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.core.stable import stable
from gimbal.runtime.compose import check

RUNS = tokens.load(composed.RECORD)


def run(arm: str, seed: int, tokens_to: int, rate: float | None = None, ends: float = 0.95) -> dict:
    """A record that rises in a straight line to ``ends`` at so many tokens, a second for each thousand."""
    rate = composed.ARMS[arm]().optimization.learning_rate if rate is None else rate
    marks = [(0, 0.0, composed.START), (tokens_to, tokens_to / 1000, ends)]
    return {"arm": arm, "rate": rate, "seed": seed, "marks": marks, "groups": 10, "trained": tokens_to // 2}


def record() -> list[dict]:
    tried = [run("grpo", composed.TUNING, spent, rate) for rate, spent in zip(composed.RATES, (9, 3, 5), strict=True)]
    own = [run("composed", seed, 60_000 + seed) for seed in composed.SEEDS]
    return [*tried, *own, *(run("grpo", seed, 180_000 + seed, 1e-4) for seed in composed.SEEDS)]


def test_arms_are_the_recipes_and_the_composed_one_differs_from_stable_in_what_is_said():
    for arm, recipe in composed.ARMS.items():
        own = composed.run_of(composed.Job(arm, recipe().optimization.learning_rate, 3))
        check(own)
        apart = {f.name for f in fields(own) if vars(own)[f.name] != vars(recipe())[f.name]}
        assert apart <= {"held_out", "steps", "seed", "threads"} | ({"engine"} if arm == composed.TRL else set())
    whole, base = composed.composed(), stable()
    apart = {f.name for f in fields(whole) if vars(whole)[f.name] != vars(base)[f.name]}
    assert apart == {"optimization", "prompts_per_step", "max_staleness"} and whole.tasks == grpo().tasks
    dropping = composed.mixed()
    apart = {f.name for f in fields(whole) if vars(whole)[f.name] != vars(dropping)[f.name]}
    assert apart == {"prompts_per_step", "filters"}


def test_the_rate_of_grpo_is_the_one_that_costs_least():
    assert composed.rate_of(record(), "grpo") == 1e-4 and composed.rate_of(record()[1:], "grpo") is None
    never = [
        run("grpo", composed.TUNING, 9, rate, ends) for rate, ends in zip(composed.RATES, (0.5, 0.6, 0.8), strict=True)
    ]
    assert composed.rate_of(never, "grpo") == 3e-4, "where none gets there, the one that ends highest"


def test_a_comparison_needs_all_seeds():
    found = composed.compared(record(), "composed", "grpo")
    assert found.tokens[0] == pytest.approx(1 / 3, abs=0.001) and found.p < tokens.P
    assert (
        composed.compared(record()[:-1], "composed", "grpo") is None
        and composed.compared(record(), "mixed", "demo") is None
    )
    assert "nothing is decided" in composed_page.said(record(), "composed", "demo")
    assert "needs 0.33 (0.33 to 0.33) of its tokens" in composed_page.said(record(), "composed", "grpo")


def test_what_is_left_is_all_but_what_was_done():
    tuned, seeds = islice(composed.left(record()), 2)
    assert [job.arm for job in tuned] == [arm for arm in (composed.TRL, "fresh", "as trl") for _ in range(3)]
    assert [job.arm for job in seeds] == ["mixed", "demo"] * 5, "one seed of each after the other"
    assert composed.whole() == 47


def test_recorded_runs_end_at_the_target_or_at_the_most():
    for found in RUNS:
        last = found["marks"][-1]
        limit = 200_000 if (found["arm"], found["seed"]) == (composed.TRL, composed.TUNING) else composed.MOST
        assert found["ended"] or last[2] >= composed.TARGET or last[0] >= limit - composed.MARK
        assert all(score < composed.TARGET for _, _, score in found["marks"][:-1])
