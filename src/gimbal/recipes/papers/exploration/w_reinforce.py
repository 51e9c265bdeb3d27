from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.signed_outcome import SignedOutcome
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def w_reinforce() -> Run:
    """W-REINFORCE (arXiv:2506.01347): wrong answers push down in full, right ones push up a tenth as much, which keeps diversity.

    One update a batch, at a ratio of 1, so the clip never acts; the authors take four.
    """
    return replace(grpo(), advantage=SignedOutcome(), aggregation=TokenMean())
