from __future__ import annotations

from dataclasses import replace

from gimbal.environments.cases import CaseTurns
from gimbal.environments.mixture import Mixed
from gimbal.environments.recall import StreamTurns
from gimbal.ops import TokenMean
from gimbal.policies.loading import MEMORY
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.core.sft import sft
from gimbal.runtime.run import Run

STEPS, PROMPTS = 400, 64


def tiny_memory() -> Run:
    """gimbal-tiny-memory from scratch: SFT on turns over streams of facts and past cases, so that it edits well half of the time.

    The model of the recipes mem_act and agentfly; 105,000 weights. docs/log.md has its evaluation.
    """
    run = sft()
    turns, cases = StreamTurns(size=STEPS * PROMPTS), CaseTurns(size=STEPS * PROMPTS // 4)
    return replace(
        run,
        policy=CausalLM(model=MEMORY, fresh=True),
        tasks=Mixed(sets=(turns, cases)),
        held_out=None,
        sampling=Sampling(max_length=16),
        aggregation=TokenMean(),
        prompts_per_step=PROMPTS,
        optimization=replace(run.optimization, learning_rate=5e-3, beta2=0.99, warmup_steps=20, decay="cosine"),
        steps=STEPS,
    )
