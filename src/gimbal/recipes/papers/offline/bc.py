from __future__ import annotations

from dataclasses import replace

from gimbal.learning.updates.behavior_cloning import BehaviorCloning
from gimbal.recipes.papers.offline.iql import iql
from gimbal.runtime.run import UpdateRun


def bc() -> UpdateRun:
    """Behavior cloning on recorded episodes of Pendulum-v1: the baseline for everything that learns only from data."""
    base = iql()
    return replace(base, update=BehaviorCloning(optimization=base.learns.optimization))
