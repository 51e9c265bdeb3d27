from __future__ import annotations

from dataclasses import replace

from gimbal.learning.proximal.ewma import Ewma
from gimbal.objectives import MaskedWeight
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.core.gspo import gspo
from gimbal.runtime.run import Run


def ppo_ewma() -> Run:
    """Revised PPO-EWMA (arXiv:2605.12070): anchors the clip at a weight average over the window of stale data."""
    return replace(
        grpo(),
        anchor=Ewma(window=4, reset_below=0.9),
        correction=MaskedWeight(low=0.5, high=2.0),
        max_staleness=4,
        ahead="full",
        optimization=gspo().optimization,
    )
