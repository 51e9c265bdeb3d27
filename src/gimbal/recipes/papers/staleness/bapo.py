from __future__ import annotations

from dataclasses import replace

from gimbal.learning.optimization import Optimization
from gimbal.learning.proximal.behavior import Behavior
from gimbal.objectives.surrogates.balanced_clip import BalancedClip
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def bapo() -> Run:
    """BAPO (arXiv:2510.18927): adapts the clip bounds to balance good and bad decisions, on data up to four versions stale.

    The ratio is to the sampler, so it includes staleness. The target is .7 instead of .5: here correct answers are longer, and
    good decisions make up two thirds of the objective before any bound moves.
    """
    return replace(
        grpo(),
        objective=BalancedClip(target=0.7),
        anchor=Behavior(),
        max_staleness=4,
        ahead="full",
        optimization=Optimization(learning_rate=1e-4, minibatches=4),
    )
