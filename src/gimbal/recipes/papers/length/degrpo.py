from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import GroupCentered
from gimbal.dataflow.filters.control_prefix import ControlPrefix
from gimbal.objectives import KLPenalty
from gimbal.ops.part_mean import PartMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def degrpo() -> Run:
    """DeGRPO (Thinkless, arXiv:2505.13379): averages the choice of answer mode separately from the answer that follows it.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        advantage=GroupCentered(),
        filters=(ControlPrefix(),),
        regularisers=(KLPenalty(coef=0.001),),
        aggregation=PartMean(control=0.001),
    )
