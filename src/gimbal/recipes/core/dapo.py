from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.objectives import ClippedRatio
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.overlong import OverlongPenalty
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run

LONGEST = 44  # decisions; gimbal-tiny's longest correct answers are near 40, so they reach the penalized last fifth, as published


def dapo() -> Run:
    """DAPO (arXiv:2503.14476): clip-higher, token mean, dynamic sampling, soft overlong penalty, four updates per batch."""
    run = grpo()
    return replace(
        run,
        objective=ClippedRatio(clip_low=0.2, clip_high=0.28),
        aggregation=TokenMean(),
        filters=(ZeroVariance(),),
        sampling=replace(run.sampling, max_length=LONGEST),
        rewards=(ReasoningScore(), OverlongPenalty(limit=LONGEST, zone=LONGEST // 5)),
        optimization=replace(run.optimization, minibatches=4),
    )
