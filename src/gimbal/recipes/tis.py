"""GRPO with truncated importance weights for the int8 sampler (TIS)."""

from __future__ import annotations

from dataclasses import replace

from gimbal.objectives import TruncatedWeight
from gimbal.recipes.grpo import grpo
from gimbal.runtime.run import Run


def tis() -> Run:
    """GRPO with truncated importance weights for the int8 sampler (TIS)."""
    return replace(grpo(), correction=TruncatedWeight(cap=2.0))
