from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.reward_shaping.relative_length import RelativeLength
from gimbal.controllers.delayed import Delayed
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def kimi_length() -> Run:
    """Kimi k1.5's length reward (arXiv:2501.12599): after a warm-up, short correct answers earn more than long ones in their group.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        reward_shaping=(RelativeLength(right="reasoning"),),
        controllers={"reward_shaping.0.weight": Delayed(steps=10, before=0.0, after=0.5)},
    )
