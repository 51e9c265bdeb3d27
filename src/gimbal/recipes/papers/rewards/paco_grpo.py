from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.reward_shaping.log_tamed import LogTamed
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run


def paco_grpo() -> Run:
    """PaCo-GRPO's log-taming (arXiv:2512.04784): of answer and form, the reward that spreads more is compressed.

    On-policy but for staleness: one update a batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        rewards=(ReasoningScore(), Pattern()),
        reward_shaping=(LogTamed(rewards=("reasoning", "format"), weights=(1.0, 1.0)),),
    )
