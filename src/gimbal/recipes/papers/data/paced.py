from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.curricula.frontier import Frontier
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.data.vade import AGAIN
from gimbal.runtime.run import Run


def paced() -> Run:
    """PACED's kernel (arXiv:2603.11178) for RL: GRPO on tasks sampled in proportion to p (1 - p), where p is their pass rate.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), **AGAIN, curriculum=Frontier())
