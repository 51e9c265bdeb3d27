from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import DiscrepancyPenalty
from gimbal.controllers import Lagrangian
from gimbal.engines.native import Native
from gimbal.learning.proximal.sampling_version import SamplingVersion
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run

UNIT = 37.0


def dcmdp() -> Run:
    """DCMDP (arXiv:2606.08779): a penalty on the discrepancy, whose Lagrange multiplier holds the mean at a limit.

    The discrepancy is between two engines with the same weights; on stale data that needs the anchor SamplingVersion. The paper has a
    gap of .0037, and uses that limit, an initial penalty of .1 and a rate of 1. An int8 gimbal-tiny differs by .0005, where that
    penalty only falls to 0. Here all units are 37 times smaller, so the penalty for a gap at the limit, and its rate of change, are as
    published.
    """
    run = grpo()
    return replace(
        run,
        engine=Native(slots=128, precision="int8", cache="recompute"),
        shaping=(DiscrepancyPenalty(strength=0.1 * UNIT),),
        anchor=SamplingVersion(window=run.max_staleness),
        controllers={
            "shaping.0.strength": Lagrangian(limit=0.0037 / UNIT, rate=UNIT**2, initial=0.1 * UNIT, high=UNIT)
        },
    )
