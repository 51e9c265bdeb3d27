"""The demo's verdict is the rule's, and what the README says of it is what is recorded."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import demo
import demo_page

RUNS = campaign.load(demo.RECORD)


def run(seed, before=0.36, after=0.95, greedy=0.98, seconds=50.0):
    scores = {"before": {"pass@1": before, "in eight": 0.97, "greedy": 0.12}}
    scores["after"] = {"pass@1": after, "in eight": 1.0, "greedy": greedy}
    return {"seed": seed, **scores, "seconds": seconds, "cpu": 60.0, "tokens": 9_000, "threads": 1, "load": 1.0}


EVERY = [run(seed) for seed in demo.SEEDS]


@pytest.mark.parametrize(
    ("other", "end"),
    [
        ({}, "in 5 of 5 seeds, in less than 90 s in 5: **reached**"),
        ({"before": 0.4}, "in 4 of 5 seeds, in less than 90 s in 5: not reached"),
        ({"after": 0.9}, "in 4 of 5 seeds, in less than 90 s in 5: not reached"),
        ({"greedy": 0.9}, "in 4 of 5 seeds, in less than 90 s in 5: not reached"),
        ({"seconds": 90.0}, "in 5 of 5 seeds, in less than 90 s in 4: not reached"),
    ],
)
def test_the_verdict_is_the_rules(other, end):
    assert demo_page.verdict([*EVERY[1:], run(0, **other)]).endswith(end)


def test_without_all_seeds_nothing_is_decided_and_the_rest_is_left_to_do():
    assert demo_page.verdict([]).startswith("not decided")
    assert "0 of 5 runs" in demo_page.section([])
    assert [*map(list, demo.left(EVERY[2:]))] == [[0, 1]] and [*map(list, demo.left(EVERY))] == [[]]


def test_the_results_say_what_is_recorded():
    said = demo_page.said([*EVERY[1:], run(0, after=0.97, seconds=61.0)])
    assert said == (
        "five seeds, held-out pass@1 from 0.36 to 0.95 - 0.97, greedy from 0.12 to 0.98, in 50 - 61 s of training (1 thread, load "
        "1.0). Before training, at least one of eight samples is right on 0.97 of the tasks."
    )
    results = (Path(__file__).parents[2] / "docs" / "results.md").read_text(encoding="utf-8")
    assert f"- **The demo**: {demo_page.said(RUNS)}" in " ".join(results.split())


@pytest.mark.slow
def test_a_seed_can_be_run():
    found = demo.measure(0, steps=2, tasks=4)
    assert set(found) == {*run(0), "pass_rate"} and len(found["pass_rate"]) == 2 and found["tokens"] > 0
    assert all(0 <= value <= 1 for when in ("before", "after") for value in found[when].values())
