"""REINFORCE with a batch baseline, importance-weighted for the int8 sampler, on fresh data."""

from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import ReturnToGo, Whitened
from gimbal.objectives import Reinforce, TruncatedWeight
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def reinforce() -> Run:
    """REINFORCE with a batch baseline, on fresh data, with importance weights for the int8 sampler."""
    return replace(
        grpo(),
        advantage=ReturnToGo(),
        shaping=(Whitened(),),
        objective=Reinforce(),
        correction=TruncatedWeight(),
        max_staleness=0,
    )
