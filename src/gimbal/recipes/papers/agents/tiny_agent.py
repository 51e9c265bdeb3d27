"""The model of the recipe ``terminal``, which the package ships."""

from __future__ import annotations

from dataclasses import replace

from gimbal.environments.chore_traces import Traces
from gimbal.ops import TokenMean
from gimbal.policies.token import Sampling
from gimbal.recipes.core.sft import sft
from gimbal.runtime.run import Run

STEPS, PROMPTS = 600, 64


def tiny_agent() -> Run:
    """gimbal-tiny-agent: SFT of gimbal-tiny on careful and careless turns in a terminal, so that it can use tools but rarely does well.

    docs/log.md has its evaluation, and the interval that another run of this recipe must reach.
    """
    run = sft()
    return replace(
        run,
        tasks=Traces(size=STEPS * PROMPTS),
        held_out=None,
        sampling=Sampling(max_length=64),
        aggregation=TokenMean(),
        prompts_per_step=PROMPTS,
        optimization=replace(run.optimization, learning_rate=1e-3, beta2=0.99, warmup_steps=20, decay="cosine"),
        steps=STEPS,
    )
