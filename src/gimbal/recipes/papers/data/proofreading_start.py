from __future__ import annotations

from dataclasses import replace

from gimbal.environments.proofreading import Proofreading
from gimbal.ops import TokenMean
from gimbal.policies.token import Sampling
from gimbal.recipes.core.sft import sft
from gimbal.runtime.run import Run


def proofreading_start() -> Run:
    """SFT on the marks of a careless proofreader: the start of omniverifier_m1 and descore (after DeScore, arXiv:2605.05922).

    Some thoughts are omitted, as published.
    """
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
