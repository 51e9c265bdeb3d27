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
    """DCMDP (arXiv:2606.08779): a price on discrepancy, moved by a Lagrangian controller that holds its mean at a limit.

    Discrepancy is between two engines at the same weights: on stale data that takes the anchor SamplingVersion. Published for a gap of
    .0037: that limit, a price of .1 at first, rate 1. An int8 gimbal-tiny differs by .0005, at which that price only fell to 0; here
    all is in units a 37th as large, so that what is paid for a gap at the limit, and how fast it changes, are as published.
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
