from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.curricula.retiring import Retiring
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.data.vade import AGAIN
from gimbal.runtime.run import Run


def retiring() -> Run:
    """Solved tasks rest and are retested less and less often: GRPO with spaced repetition (textbook).

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), **AGAIN, curriculum=Retiring())
