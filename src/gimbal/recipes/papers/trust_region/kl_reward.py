"""GRPO with the KL to the first policy paid in the reward (k1), before the group statistics."""

from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import KLReward
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def kl_reward() -> Run:
    """KL in the reward: GRPO with the k1 KL to the first policy subtracted before the group statistics.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), reward_shaping=(KLReward(coef=1e-3),))
