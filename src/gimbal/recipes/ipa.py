from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import GroupCentered
from gimbal.advantages.turn_discount import TurnDiscount
from gimbal.dataflow.filters.step_turns import StepTurns
from gimbal.objectives.discrepancy_band import DiscrepancyBand
from gimbal.objectives.tapered_ratio import TaperedRatio
from gimbal.recipes.grpo import grpo
from gimbal.runtime.run import Run


def ipa() -> Run:
    """IPA (arXiv:2512.24873): credit, ratio and mask for each step of the working, with tapered weights on stale failures."""
    return replace(
        grpo(),
        filters=(StepTurns(),),
        advantage=GroupCentered(),
        shaping=(TurnDiscount(),),
        masks=(DiscrepancyBand(),),
        objective=TaperedRatio(),
        max_staleness=8,
        ahead="full",
    )
