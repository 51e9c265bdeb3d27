from __future__ import annotations

from dataclasses import replace

from gimbal.learning.optimization import Optimization
from gimbal.objectives import SequenceRatio
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def gspo() -> Run:
    """GSPO (arXiv:2507.18071): computes and clips the ratio per sequence; four updates per batch.

    Ours: ten times the published bounds, for answers of some tens of tokens: the mean over a short answer varies more.
    """
    return replace(
        grpo(),
        objective=SequenceRatio(clip_low=3e-3, clip_high=4e-3),
        optimization=Optimization(learning_rate=1e-4, minibatches=4),
    )
