"""The bars of control are those of the rule, and a verdict follows from the record."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "claims"))

import campaign
import control
import control_page

from gimbal import recipes
from gimbal.config import Text


def runs(returns, seconds=10.0, steps=5_000):
    named = [{"return": value, "seconds": seconds, "env_steps": steps, "load": 1.0} for value in returns]
    return [{"bar": "sac", "seed": seed, **run} for seed, run in enumerate(named)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (runs([-150, -160, -160, -250, -140]), "**reached**"),
        (runs([-150, -161, -161, -250, -140]), "not reached: median below -160"),
        (runs([-150, -150, -150, -150, -251]), "not reached: worst below -250"),
        (runs([-150] * 5, seconds=31.0), "not reached: not within 30 s"),
        (runs([-150] * 5, steps=5_010), "not reached: more than 5,000 steps"),
        (runs([-150] * 4), "not decided: 4 of 5 seeds"),
    ],
)
def test_a_verdict_is_the_rules(given, said):
    bar = control.Bar(recipe="sac", most=5_000, median=-160.0, worst=-250.0, seconds=30.0)
    assert control_page.verdict(bar, given) == said


@pytest.mark.parametrize("name", control.BARS)
def test_no_bar_takes_more_steps_of_its_environment_than_its_rule_says(name):
    bar = control.BARS[name]
    run = recipes.load(bar.recipe, {key: Text(value) for key, value in bar.changes.items()})
    longest = run.engine.segment or run.sampling.max_length
    assert run.steps * run.prompts_per_step * run.num_generations * longest <= bar.most or not run.engine.segment, name


def test_what_is_recorded_belongs_to_a_bar():
    recorded = [(run["bar"], run["seed"]) for run in campaign.load(control.RECORD)]
    assert len(set(recorded)) == len(recorded)
    assert {bar for bar, _ in recorded} <= control.BARS.keys() and {seed for _, seed in recorded} <= set(control.SEEDS)
