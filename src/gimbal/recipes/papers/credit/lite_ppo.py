from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.batch_scaled import BatchScaled
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def lite_ppo() -> Run:
    """Lite PPO (arXiv:2508.08221): GRPO with the scale of the batch for that of the group, and the mean over tokens.

    On-policy but for staleness: one update a batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), advantage=BatchScaled(), aggregation=TokenMean())
