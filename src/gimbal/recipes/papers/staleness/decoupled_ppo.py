from __future__ import annotations

from dataclasses import replace

from gimbal.objectives import TruncatedWeight
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def decoupled_ppo() -> Run:
    """Decoupled PPO (arXiv:2505.24298): clip around the recomputed policy, weights capped at 5; data up to four versions stale.

    Four updates per batch, as published: with one, the policy still equals its anchor, the ratio is 1 and no clip acts.
    """
    run = grpo()
    return replace(
        run,
        correction=TruncatedWeight(cap=5.0),
        aggregation=TokenMean(),
        max_staleness=4,
        ahead="full",
        optimization=replace(run.optimization, minibatches=4),
    )
