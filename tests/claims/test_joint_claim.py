"""The claim on words and pictures: arms that differ in who learns, and in *apart* each kind paid for what it does."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))
import campaign
import joint

from gimbal.runtime.compose import check


def test_who_learns_is_all_that_differs():
    both, words, pictures = (joint.run_of(arm, 1e-4, 2) for arm in (joint.JOINT, joint.WORDS, joint.PICTURES))
    assert both == replace(words, separate=both.separate) == replace(pictures, optimization=both.optimization)
    rates = [(run.optimization.learning_rate, run.separate["painter"].learning_rate) for run in (both, words, pictures)]
    assert rates == [(1e-4, pytest.approx(3e-4)), (1e-4, 0.0), (0.0, pytest.approx(3e-4))]
    assert (both.seed, both.steps, both.prompts_per_step * both.num_generations) == (2, joint.STEPS, 128)


def test_apart_each_kind_is_paid_for_what_it_does_in_as_many_episodes():
    words, pictures = joint.apart(joint.run_of(joint.APART, 1e-4, 2))
    assert [reward.name for reward in words.rewards] == ["plan"] and not words.separate
    assert [type(reward) for reward in pictures.rewards] == [joint.DigitLikeness]
    kind = joint.run_of(joint.APART, 1e-4, 2).separate["painter"].kind
    assert (pictures.policy, pictures.sampling, pictures.objective) == (kind.policy, kind.sampling, kind.objective)
    assert pictures.optimization.learning_rate == pytest.approx(3e-4)
    for run in (words, pictures):
        assert run.prompts_per_step * run.num_generations == 128 and run.seed == 2
        check(run)


def test_the_record_is_of_the_rule():
    for run in campaign.load(joint.RECORD):
        assert len(run["scores"]) == joint.STEPS and run["rate"] in joint.TUNED.rates
        assert run["seed"] in (*joint.TUNED.seeds, joint.TUNED.seed) and run["arm"] in joint.ARMS
