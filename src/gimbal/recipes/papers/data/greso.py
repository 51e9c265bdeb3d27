from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.curricula.skipping import Skipping
from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.data.vade import AGAIN
from gimbal.runtime.run import Run


def greso() -> Run:
    """GRESO (arXiv:2506.02177): GRPO with dynamic sampling that skips, before generation, tasks whose last groups taught nothing.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), **AGAIN, curriculum=Skipping(), filters=(ZeroVariance(),))
