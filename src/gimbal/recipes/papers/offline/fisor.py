from __future__ import annotations

from dataclasses import replace

from gimbal.critics.actions import ActionValues
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.environments.minari import Minari
from gimbal.learning.updates.feasibility import FeasibilityGuided
from gimbal.policies.gaussian import Gaussian
from gimbal.recipes.papers.offline.iql import iql
from gimbal.runtime.run import HeldOut, UpdateRun


def fisor() -> UpdateRun:
    """FISOR (arXiv:2401.10700) on recorded episodes of a cart between bounds: reward where they can be kept, else the way back."""
    base, tasks = iql(), Minari(dataset="gimbal/cart/bounds-v0")
    return replace(
        base,
        policy=Gaussian(observations=2, actions=1),
        tasks=tasks,
        held_out=HeldOut(
            tasks=Gymnasium(environment=tasks.source, seed=2, size=20), samples=1, engine=Episodes(slots=20)
        ),
        update=FeasibilityGuided(
            critic=ActionValues(observations=2, actions=1),
            gamma=0.95,
            tau=0.02,
            violation=10.0,  # at 25 states count as lost from which a third of the data's drivers leave the bounds
            optimization=base.learns.optimization,
        ),
    )
