from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.curricula.banded import Banded
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.data.vade import AGAIN
from gimbal.runtime.run import Run


def difficulty_bands() -> Run:
    """Difficulty pools (as in prime-rl, 2026): GRPO on tasks sampled from pass-rate bands in fixed shares.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), **AGAIN, curriculum=Banded())
