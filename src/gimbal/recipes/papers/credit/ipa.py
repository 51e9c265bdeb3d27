from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import GroupCentered
from gimbal.advantages.shapings.turn_discount import TurnDiscount
from gimbal.dataflow.filters.step_turns import StepTurns
from gimbal.engines.native import Native
from gimbal.learning.proximal.sampling_version import SamplingVersion
from gimbal.objectives.masks.discrepancy_band import DiscrepancyBand
from gimbal.objectives.surrogates.tapered_ratio import TaperedRatio
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def ipa() -> Run:
    """IPA (arXiv:2512.24873): credit, ratio and mask for each step of the working, with tapered weights on stale failures.

    One update a batch: the ratio is to the version that sampled, up to eight versions old. The published bound of the mask is not
    known; at 1.01 it leaves out the hundredth of steps that an int8 sampler sees least as the trainer does.
    """
    return replace(
        grpo(),
        engine=Native(slots=128, precision="int8", cache="recompute"),
        filters=(StepTurns(separator=" "),),
        anchor=SamplingVersion(window=8),
        advantage=GroupCentered(),
        shaping=(TurnDiscount(),),
        masks=(DiscrepancyBand(high=1.01),),
        objective=TaperedRatio(),
        max_staleness=8,
        ahead="full",
    )
