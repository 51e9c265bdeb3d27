from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.replay.hindsight import Hindsight
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.learning.updates.behavior_cloning import BehaviorCloning
from gimbal.recipes.papers.control.her import her
from gimbal.runtime.run import UpdateRun


def gcsl() -> UpdateRun:
    """GCSL (arXiv:1912.06088) on a reaching task, without rewards: clones its own steps for goals that their episodes reached."""
    base = her()
    assert isinstance(base.store, Transitions)
    return replace(
        base,
        # A thousand goals of the episode for each that was wanted: what an episode did is hardly ever cloned for what it missed.
        store=replace(base.store, hindsight=Hindsight(goals=1000)),
        update=BehaviorCloning(optimization=base.learns.optimization),
    )
