from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import GroupCentered
from gimbal.dataflow.budgets.deepened import Deepened
from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.data.vade import AGAIN
from gimbal.runtime.run import Run


def dars() -> Run:
    """DARS (arXiv:2508.13755): hard tasks get more rollouts, until their group carries as much advantage as one with pass rate 1/2.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), **AGAIN, advantage=GroupCentered(), budget=Deepened(), filters=(ZeroVariance(),))
