from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.curricula.allocated import Allocated
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def v0() -> Run:
    """V_0 (arXiv:2602.03584): GRPO that gives more rollouts to prompts whose groups are expected to be mixed.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), curriculum=Allocated(prompts=16, rollouts=8))
