from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.shapings.residual_weighted import ResidualWeighted
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def resrl() -> Run:
    """ResRL (2026): penalises wrong answers where their hidden states leave the span of correct ones; correct ones have weight .1.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), shaping=(ResidualWeighted(rank=8),))
