from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import LeaveOneOut
from gimbal.objectives import Reinforce
from gimbal.ops import SequenceSum
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def rloo() -> Run:
    """RLOO (arXiv:2402.14740): leave-one-out baseline and plain policy gradient over whole sequences, on fresh data."""
    return replace(grpo(), advantage=LeaveOneOut(), objective=Reinforce(), aggregation=SequenceSum(), max_staleness=0)
