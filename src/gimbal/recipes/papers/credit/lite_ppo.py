from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.batch_scaled import BatchScaled
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def lite_ppo() -> Run:
    """Lite PPO (arXiv:2508.08221): GRPO with the batch's standard deviation instead of the group's, and the token mean.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), advantage=BatchScaled(), aggregation=TokenMean())
