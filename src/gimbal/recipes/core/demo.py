"""What `make demo` runs."""

from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.objectives import ClippedRatio, TruncatedWeight
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def demo() -> Run:
    """The demo: gimbal-tiny learns to reason carefully on a laptop CPU, with an int8 sampler and data up to one version stale.

    GRPO with clip-higher, token mean, dynamic sampling and truncated importance weights on reasoning-gym's chain_sum. The
    policy starts with three ways of answering: guessing, sloppy reasoning and careful reasoning.
    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        objective=ClippedRatio(clip_low=0.2, clip_high=0.28),
        correction=TruncatedWeight(),
        aggregation=TokenMean(),
        filters=(ZeroVariance(),),
        steps=40,
    )
