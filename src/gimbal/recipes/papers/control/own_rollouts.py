from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.replay.transitions import Transitions
from gimbal.recipes.papers.control.pets import pets
from gimbal.runtime.run import UpdateRun


def own_rollouts() -> UpdateRun:
    """PETS (arXiv:1805.12114) on Pendulum-v1, its world trained on its own rollouts of five steps, against the recorded ones."""
    base = pets()
    assert isinstance(base.store, Transitions)
    return replace(base, store=replace(base.store, path=5))
