from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.replay.preferences import Prioritized
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.recipes.papers.control.dqn import dqn
from gimbal.runtime.run import UpdateRun


def per() -> UpdateRun:
    """Prioritized replay (arXiv:1511.05952) on CartPole-v1: DQN that draws the steps likelier whose values were furthest off."""
    store = Transitions(
        capacity=50_000, minibatch=128, update_to_data=0.25, learning_starts=1000, n=5, preference=Prioritized()
    )
    return replace(dqn(), store=store)
