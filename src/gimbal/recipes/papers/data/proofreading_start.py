from __future__ import annotations

from dataclasses import replace

from gimbal.environments.proofreading import Proofreading
from gimbal.ops import TokenMean
from gimbal.policies.token import Sampling
from gimbal.recipes.core.sft import sft
from gimbal.runtime.run import Run


def proofreading_start() -> Run:
    """Supervised on the marks of a careless proofreader: where the verifiers omniverifier_m1 and descore start from, as
    DeScore (arXiv:2605.05922) does, with some thoughts left out."""
    run = sft()
    return replace(
        run,
        tasks=Proofreading(noise=0.2, hidden=0.3),
        held_out=None,
        aggregation=TokenMean(),
        sampling=Sampling(max_length=32),
        prompts_per_step=64,
        optimization=replace(run.optimization, learning_rate=1e-3),
        steps=300,
    )
