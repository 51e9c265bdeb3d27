from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import DiscrepancyPenalty
from gimbal.controllers import Lagrangian
from gimbal.learning.proximal.sampling_version import SamplingVersion
from gimbal.recipes.grpo import grpo
from gimbal.runtime.run import Run


def dcmdp() -> Run:
    """DCMDP (arXiv:2606.08779): a price on discrepancy, moved by a Lagrangian controller that holds its mean at a limit.

    Discrepancy is between two engines at the same weights: on stale data that takes the anchor SamplingVersion.
    """
    run = grpo()
    return replace(
        run,
        shaping=(DiscrepancyPenalty(),),
        anchor=SamplingVersion(window=run.max_staleness),
        controllers={"shaping.0.strength": Lagrangian(limit=0.003)},
    )
