from __future__ import annotations

from dataclasses import replace

from gimbal.controllers.adaptive_kl import AdaptiveKL
from gimbal.controllers.smoothed import Smoothed
from gimbal.objectives import KLPenalty
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def kl_smoothed() -> Run:
    """Smoothed KL coefficient (arXiv:2510.00339): an adaptive KL coefficient, averaged and capped, as in its adaptive synchronisation.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    rule = AdaptiveKL(target=0.05, gain=1.0)
    return replace(
        grpo(),
        regularisers=(KLPenalty(),),
        controllers={"regularisers.0.coef": Smoothed(rule=rule, share=0.5, cap=0.005)},
    )
