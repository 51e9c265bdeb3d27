"""The second family learns, through the same store, staleness rule, estimators and learner as the tokens."""

import pytest

from gimbal.recipes.cartpole import cartpole
from gimbal.recipes.pendulum import pendulum
from gimbal.runtime.local import Trainer


def learned(run):
    from dataclasses import replace

    trainer = Trainer(replace(run, threads=1))
    ages = []
    while trainer.learner.version < run.steps:
        ages.append(trainer.advance()[0]["staleness/max"])
    assert max(ages) == 1
    return trainer.examine().score, trainer.pipeline.generated["decisions"]


@pytest.mark.slow
def test_cartpole_reaches_475():
    score, steps = learned(cartpole())
    assert score >= 475 and steps <= 500_000


@pytest.mark.slow
def test_pendulum_reaches_minus_250():
    score, steps = learned(pendulum())
    assert score >= -250 and steps <= 100_000
