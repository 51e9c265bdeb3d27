from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.replay.preferences import Prioritized
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.recipes.papers.control.dqn import dqn
from gimbal.runtime.run import UpdateRun


def per() -> UpdateRun:
    """Prioritized replay (arXiv:1511.05952) on CartPole-v1: DQN that draws the steps likelier whose values were furthest off."""
    run = dqn()
    assert isinstance(run.store, Transitions)
    return replace(run, store=replace(run.store, preference=Prioritized()))
