"""The arms of the claim on horizons differ in what they are named after."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import horizons

pytest.importorskip("gymnasium")


def test_one_horizon_is_several_without_the_others():
    several, one = (horizons.run_of(arm, 1e-3, 3) for arm in ("several", "one"))
    assert several.regularisers[0].gammas[-1] == several.advantage.gamma == one.advantage.gamma
    (wide, *rest), (single, *others) = several.regularisers, one.regularisers
    assert rest == others and wide.coef == single.coef and wide.clip == single.clip == float("inf")
    assert replace(several.critic, heads=1) == replace(one.critic, heads=1)
    assert replace(one, regularisers=several.regularisers, critic=several.critic) == several


def test_the_shorter_horizon_is_the_recipe_cartpole():
    shorter, several = horizons.run_of("shorter", 2e-3, 0), horizons.run_of("several", 2e-3, 0)
    assert shorter.advantage.gamma == 0.99 and shorter.optimization == several.optimization
    assert shorter.policy == several.policy and shorter.steps == several.steps
