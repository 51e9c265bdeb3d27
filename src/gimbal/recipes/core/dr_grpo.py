from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import GroupCentered
from gimbal.ops import ConstantMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def dr_grpo() -> Run:
    """Dr. GRPO (arXiv:2503.20783): GRPO without dividing by the standard deviation, and with a constant length as denominator.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), advantage=GroupCentered(), aggregation=ConstantMean(length=64.0))
