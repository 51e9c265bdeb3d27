from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.replay.recordings import Recordings
from gimbal.recipes.papers.control.pets import pets
from gimbal.recipes.papers.offline.iql import iql
from gimbal.runtime.run import UpdateRun


def world() -> UpdateRun:
    """A world model of recorded episodes of Pendulum-v1 (PETS' ensemble, arXiv:1805.12114), in which other recipes can then act."""
    base, planning = iql(), pets()
    return replace(
        base, policy=planning.policy, store=Recordings(moves=1000, minibatch=128), update=planning.update, steps=5
    )
