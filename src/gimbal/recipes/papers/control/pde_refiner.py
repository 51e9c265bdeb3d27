from __future__ import annotations

from dataclasses import replace

from gimbal.policies.dynamics import Dynamics
from gimbal.policies.planned import Planned
from gimbal.recipes.papers.control.pets import pets
from gimbal.runtime.run import UpdateRun


def pde_refiner() -> UpdateRun:
    """PDE-Refiner's steps (arXiv:2308.05732) in PETS on Pendulum-v1: the world takes two sizes of noise off its predictions.

    Not shown here: equations of fluids, for which it was published.
    """
    base = pets()
    assert isinstance(base.policy, Planned) and isinstance(base.policy.world, Dynamics)
    return replace(base, policy=replace(base.policy, world=replace(base.policy.world, refine=(0.01, 0.001))))
