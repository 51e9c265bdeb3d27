from __future__ import annotations

from dataclasses import replace

from gimbal.controllers.adaptive_kl import AdaptiveKL
from gimbal.controllers.smoothed import Smoothed
from gimbal.objectives import KLPenalty
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def kl_smoothed() -> Run:
    """An adaptive KL coefficient that follows its rule by an average and a cap, for synchrony at stability (arXiv:2510.00339).

    On-policy but for staleness: one update a batch, at a ratio of 1, so the clip never acts.
    """
    rule = AdaptiveKL(target=0.05, gain=1.0)
    return replace(
        grpo(),
        regularisers=(KLPenalty(),),
        controllers={"regularisers.0.coef": Smoothed(rule=rule, share=0.5, cap=0.005)},
    )
