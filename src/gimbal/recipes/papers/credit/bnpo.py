from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.beta_normalized import BetaNormalized
from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio
from gimbal.ops import SequenceSum
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def bnpo() -> Run:
    """BNPO (arXiv:2506.02864): scales advantages by a Beta density fitted to the batch's success rates.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        advantage=BetaNormalized(),
        objective=ClippedRatio(clip_low=0.2, clip_high=0.28, dual_clip=10.0),
        aggregation=SequenceSum(),
    )
