"""GRPO with an entropy bonus."""

from __future__ import annotations

from dataclasses import replace

from gimbal.objectives import EntropyBonus
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def entropy() -> Run:
    """GRPO with an entropy bonus.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), regularisers=(EntropyBonus(coef=0.003),))
