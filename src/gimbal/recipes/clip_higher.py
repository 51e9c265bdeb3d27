from __future__ import annotations

from dataclasses import replace

from gimbal.objectives import ClippedRatio
from gimbal.recipes.grpo import grpo
from gimbal.runtime.run import Run


def clip_higher() -> Run:
    """DAPO's wider upper clip (arXiv:2503.14476): unlikely good decisions may grow further, and entropy falls slower."""
    return replace(grpo(), objective=ClippedRatio(clip_low=0.2, clip_high=0.28))
