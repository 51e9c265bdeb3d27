from __future__ import annotations

from dataclasses import replace

from gimbal.objectives.surrogates.hazard import HazardModulated
from gimbal.ops import SequenceMean
from gimbal.recipes.core.gspo import gspo
from gimbal.runtime.run import Run


def mhpo() -> Run:
    """MHPO (arXiv:2603.16929): a smooth, bounded surrogate with hazard damping instead of the clip; four updates per batch."""
    return replace(gspo(), objective=HazardModulated(normalise=True), aggregation=SequenceMean())
