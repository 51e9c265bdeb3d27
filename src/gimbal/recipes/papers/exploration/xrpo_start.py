from __future__ import annotations

from dataclasses import replace

from gimbal.environments.exemplified import Exemplified
from gimbal.policies.token import Sampling
from gimbal.recipes.core.sft import sft
from gimbal.runtime.run import Run


def xrpo_start() -> Run:
    """SFT on chain sums behind a solved example: gimbal-tiny learns to read two questions in one prompt, and to go by the example.

    The start of xrpo, whose seeded prompts gimbal-tiny alone does not understand: `gimbal train xrpo policy.model=runs/NAME/model`.
    """
    run = sft()
    return replace(
        run,
        tasks=Exemplified(),
        held_out=None,
        sampling=Sampling(max_length=80),
        prompts_per_step=48,
        optimization=replace(run.optimization, learning_rate=1e-3, warmup_steps=5, decay="cosine"),
        steps=60,
    )
