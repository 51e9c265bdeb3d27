from __future__ import annotations

from dataclasses import replace

from gimbal.controllers import AdaptiveKL
from gimbal.objectives import KLPenalty
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def kl_adaptive() -> Run:
    """Adaptive KL (arXiv:1909.08593): GRPO with a KL penalty in the loss, whose coefficient keeps the KL at a target.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), regularisers=(KLPenalty(),), controllers={"regularisers.0.coef": AdaptiveKL(target=0.05)})
