"""The claims on streams and on forecasts: arms that differ in one thing, and settings that are the rule's."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))
import forecasts
import stream_scores
import streams

from gimbal.dataflow.real_samples import RealSamples


def test_the_past_is_all_that_differs():
    own, real = (streams.run_of(arm, 1e-4, 2) for arm in (streams.OWN, streams.REAL))
    assert own == replace(real, workflow=replace(real.workflow, past=None)) and real.workflow.past == RealSamples()
    assert (own.workflow.blocks, own.seed, own.update.optimization.learning_rate) == (6, 2, 1e-4)
    assert own.prompts_per_step * own.num_generations == 32 and own.sampling.max_length == 4 and streams.LONG == 12


def test_the_weights_or_the_past_are_all_that_differs():
    runs = {arm: stream_scores.run_of(arm, 3e-4, 1) for arm in stream_scores.TUNED.arms}
    plain = runs[stream_scores.PLAIN]
    assert plain.update.weighted is None and plain.workflow.past is None
    for arm in (stream_scores.ROLLOUTS, stream_scores.BOTH):
        assert replace(runs[arm], update=replace(runs[arm].update, weighted=None)) == plain
    real = runs[stream_scores.REAL]
    assert replace(real, workflow=plain.workflow) == plain and real.workflow.past == RealSamples()
    assert [runs[arm].update.weighted.saliency for arm in (stream_scores.ROLLOUTS, stream_scores.BOTH)] == [False, True]
    assert plain.update.optimization.critic_learning_rate == 3e-4
    assert plain.prompts_per_step * plain.num_generations == 16 and plain.sampling.max_length == 2


def test_the_forecast_is_all_that_differs():
    critic, scores = (forecasts.run_of(arm, 1e-4, 3) for arm in (forecasts.CRITIC, forecasts.SCORES))
    assert critic == replace(scores, update=replace(scores.update, warm_up=4))
    assert scores.update.warm_up == forecasts.STEPS, "it never ends"
    assert critic.update.coef == 0.1 and critic.update.optimization.critic_learning_rate == 3e-3
