from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.replay.recordings import Recordings
from gimbal.learning.updates.world_denoising import OwnRollouts, WorldDenoising
from gimbal.recipes.papers.offline.diffusion_world import diffusion_world
from gimbal.runtime.run import UpdateRun


def persist_world() -> UpdateRun:
    """PersistWorld's loss (arXiv:2603.25685) for a diffusion world of Pendulum-v1: trained on its own rollouts of five steps too.

    Published: of worlds that are trained already. policy.model names one that a run of diffusion_world has saved.
    """
    base = diffusion_world()
    assert isinstance(base.store, Recordings) and isinstance(base.update, WorldDenoising)
    return replace(base, store=replace(base.store, path=5), update=replace(base.update, own=OwnRollouts()), steps=2)
