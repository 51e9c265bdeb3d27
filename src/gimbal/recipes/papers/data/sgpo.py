from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.curricula.profiled import Profiled
from gimbal.dataflow.filters.profile_only import ProfileOnly
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.data.vade import AGAIN
from gimbal.runtime.run import Run


def sgpo() -> Run:
    """sGPO (arXiv:2606.08854): the first policy profiles all tasks; then easy to hard, with group sizes inverse to the pass rate.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), **AGAIN, max_empty_batches=40, curriculum=Profiled(), filters=(ProfileOnly(),))
