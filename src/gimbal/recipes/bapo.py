from __future__ import annotations

from dataclasses import replace

from gimbal.learning.method import Optimization
from gimbal.objectives.balanced_clip import BalancedClip
from gimbal.recipes.grpo import grpo
from gimbal.runtime.run import Run


def bapo() -> Run:
    """BAPO (arXiv:2510.18927): clip bounds that keep good decisions in balance, on data four versions stale."""
    return replace(
        grpo(),
        objective=BalancedClip(),
        max_staleness=4,
        ahead="full",
        optimization=Optimization(learning_rate=1e-4, minibatches=4),
    )
