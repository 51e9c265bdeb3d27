from __future__ import annotations

from dataclasses import replace

from gimbal.objectives import MaskedWeight
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def icepop() -> Run:
    """GRPO with decisions dropped where sampler and trainer disagree too far (IcePop, arXiv:2510.18855).

    On-policy but for staleness: one update a batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), correction=MaskedWeight(low=0.5, high=5.0))
