from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.reward_shaping.log_tamed import LogTamed
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run


def paco_grpo() -> Run:
    """PaCo-GRPO's log-taming (arXiv:2512.04784): takes the logarithm of whichever reward, answer or format, varies too much.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        rewards=(ReasoningScore(), Pattern()),
        reward_shaping=(LogTamed(rewards=("reasoning", "format"), weights=(1.0, 1.0)),),
    )
