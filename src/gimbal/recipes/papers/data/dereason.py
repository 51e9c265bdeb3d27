from __future__ import annotations

from dataclasses import replace

from gimbal.environments.within import Within
from gimbal.policies.token import Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.data.dereason_sft import ALL, HELD_OUT
from gimbal.runtime.run import HeldOut, Run


def dereason() -> Run:
    """DeReason, stage 2 (arXiv:2603.11193): RL on the hard part of the tasks only (long sums), two updates per batch.

    Start from the model of `dereason_sft`: policy.model=runs/NAME/model. Otherwise it is GRPO on the hard part.
    """
    run = grpo()
    return replace(
        run,
        tasks=Within(tasks=ALL, column="metadata.num_terms", above=4.0),
        held_out=HeldOut(tasks=HELD_OUT, samples=4),
        sampling=Sampling(max_length=96),
        optimization=replace(run.optimization, minibatches=2),
    )
