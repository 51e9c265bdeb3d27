"""GRPO with truncated importance weights for the int8 sampler (TIS)."""

from __future__ import annotations

from dataclasses import replace

from gimbal.objectives import TruncatedWeight
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def tis() -> Run:
    """TIS: GRPO with truncated importance weights for the int8 sampler.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), correction=TruncatedWeight(cap=2.0))
