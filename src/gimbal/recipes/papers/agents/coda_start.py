from __future__ import annotations

from dataclasses import replace

from gimbal.environments.lookups import LookupTurns
from gimbal.ops import TokenMean
from gimbal.policies.loading import MEMORY
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.core.sft import sft
from gimbal.runtime.run import Run

STEPS, PROMPTS = 600, 64


def coda_start() -> Run:
    """SFT of gimbal-tiny-memory on turns of agents that look things up alone or delegate it, and misread one page in ten.

    The start of coda_peco: `gimbal train coda_peco policy.model=runs/NAME/model`.
    """
    run = sft()
    return replace(
        run,
        policy=CausalLM(model=MEMORY),
        tasks=LookupTurns(size=STEPS * PROMPTS),
        held_out=None,
        sampling=Sampling(max_length=8),
        aggregation=TokenMean(),
        prompts_per_step=PROMPTS,
        optimization=replace(run.optimization, learning_rate=5e-3, beta2=0.99, warmup_steps=20, decay="cosine"),
        steps=STEPS,
    )
