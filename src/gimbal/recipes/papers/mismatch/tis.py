"""GRPO with truncated importance weights for the int8 sampler (TIS)."""

from __future__ import annotations

from dataclasses import replace

from gimbal.objectives import TruncatedWeight
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def tis() -> Run:
    """GRPO with truncated importance weights for the int8 sampler (TIS).

    On-policy but for staleness: one update a batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), correction=TruncatedWeight(cap=2.0))
