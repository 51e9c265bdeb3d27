"""What `make demo` runs."""

from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.objectives import ClippedRatio, TruncatedWeight
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def demo() -> Run:
    """gimbal-tiny finds out that careful working pays: int8 sampler, data up to one version stale, on a laptop CPU.

    GRPO with clip-higher, token mean, dynamic sampling and truncated importance weights on reasoning-gym's chain_sum. The
    policy starts with three ways of answering (guessing, sloppy working, careful working).
    On-policy but for staleness: one update a batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        objective=ClippedRatio(clip_low=0.2, clip_high=0.28),
        correction=TruncatedWeight(),
        aggregation=TokenMean(),
        filters=(ZeroVariance(),),
        steps=40,
    )
