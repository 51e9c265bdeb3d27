from __future__ import annotations

from dataclasses import replace

from gimbal.learning.updates.world_denoising import WorldDenoising
from gimbal.policies.diffusion_dynamics import DiffusionDynamics
from gimbal.policies.planned import Planned
from gimbal.recipes.papers.offline.world import world
from gimbal.runtime.run import UpdateRun


def diffusion_world() -> UpdateRun:
    """A world of recorded episodes of Pendulum-v1 that draws each step by denoising (DIAMOND's form, arXiv:2405.12399), of vectors.

    Not shown here: pixels, from which DIAMOND's worlds are.
    """
    base = world()
    policy = base.policy
    assert isinstance(policy, Planned)
    return replace(
        base,
        policy=replace(policy, world=DiffusionDynamics(observations=3, actions=1)),
        update=WorldDenoising(optimization=base.update.optimization),
    )
