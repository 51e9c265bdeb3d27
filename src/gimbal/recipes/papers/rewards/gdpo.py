from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.reward_decoupled import RewardDecoupled
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run


def gdpo() -> Run:
    """GDPO (arXiv:2601.05242): normalises answer and format rewards separately in each group, then sums and whitens them.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        rewards=(ReasoningScore(), Pattern()),
        advantage=RewardDecoupled(rewards=("reasoning", "format")),
    )
