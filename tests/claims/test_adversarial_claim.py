"""The claims on discriminators and on kept paths: arms that differ in one thing, and settings that are the rule's."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))
import adversarial
import blackbox
import cached


def test_the_discriminator_is_all_that_differs():
    plain, both = (adversarial.run_of(arm, 3e-4, 2) for arm in (adversarial.SCORES, adversarial.BOTH))
    assert both.update.adversarial.coef == 0.03 and both.update.adversarial.real.file == "digits"
    assert plain == replace(both, update=replace(both.update, adversarial=None))
    assert both.update.optimization.critic_learning_rate == both.update.optimization.learning_rate == 3e-4
    assert both.seed == 2 and both.sampling.max_length == 2


def test_the_steps_are_all_that_differs():
    runs = {arm: cached.run_of(arm, 1e-4, 2) for arm in cached.STEPS}
    assert all(
        replace(run, update=replace(run.update, steps=cached.STEPS[cached.DRTUNE])) == runs[cached.DRTUNE]
        for run in runs.values()
    )
    assert {steps.count for steps in cached.STEPS.values()} == {3} and cached.LENGTH == 6
    assert runs[cached.SPARSE].sampling.max_length == cached.LENGTH and runs[cached.SPARSE].update.coef == 10


def test_whether_the_discriminator_learns_is_all_that_differs():
    taught, frozen = (blackbox.run_of(arm, 1e-3, 2) for arm in (blackbox.AFD, blackbox.FROZEN))
    rates = frozen.update.optimization
    assert taught.update.optimization == replace(rates, critic_learning_rate=blackbox.RATE)
    assert rates.critic_learning_rate == blackbox.NEVER and rates.learning_rate == 1e-3
    assert taught == replace(frozen, update=taught.update) and taught.update.real.only == (blackbox.WANTED,)
