from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.replay.preferences import AgeDecay
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.recipes.papers.control.sac import sac
from gimbal.runtime.run import UpdateRun


def swd() -> UpdateRun:
    """Sample Weight Decay (arXiv:2604.01913) on Pendulum-v1: SAC that draws a step the less often, the longer ago it came in."""
    run = sac()
    assert isinstance(run.store, Transitions)
    return replace(run, store=replace(run.store, preference=AgeDecay(span=2_500.0)))
