from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import GroupCentered
from gimbal.advantages.shapings.turn_discount import TurnDiscount
from gimbal.engines.native import Native
from gimbal.learning.proximal.sampling_version import SamplingVersion
from gimbal.objectives.masks.discrepancy_band import DiscrepancyBand
from gimbal.objectives.surrogates.tapered_ratio import TaperedRatio
from gimbal.recipes.papers.agents.terminal import terminal
from gimbal.runtime.run import Run


def ipa() -> Run:
    """IPA (arXiv:2512.24873), in a terminal: takes credit, ratio and mask per turn, and tapers the weights of stale failures.

    One update per batch: the ratio is to the version that sampled, up to eight versions old. The paper does not give the mask's
    bound; 1.001 leaves out about 1 % of the decisions, in turns where the int8 sampler and the trainer differ most.
    """
    return replace(
        terminal(),
        engine=Native(slots=128, precision="int8", cache="recompute"),
        anchor=SamplingVersion(window=8),
        advantage=GroupCentered(),
        shaping=(TurnDiscount(),),
        masks=(DiscrepancyBand(high=1.001),),
        objective=TaperedRatio(),
        max_staleness=8,
        ahead="full",
    )
