from __future__ import annotations

from dataclasses import replace

from gimbal.objectives import MaskedWeight
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def icepop() -> Run:
    """IcePop (arXiv:2510.18855): GRPO that drops decisions where sampler and trainer disagree too much.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), correction=MaskedWeight(low=0.5, high=5.0))
