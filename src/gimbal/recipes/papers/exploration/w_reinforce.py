from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.signed_outcome import SignedOutcome
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def w_reinforce() -> Run:
    """W-REINFORCE (arXiv:2506.01347): full weight for wrong answers and a tenth for correct ones, which keeps diversity.

    Here on-policy except for staleness: one update per batch, so the clip never acts. The authors take four updates.
    """
    return replace(grpo(), advantage=SignedOutcome(), aggregation=TokenMean())
