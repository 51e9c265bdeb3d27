from __future__ import annotations

from dataclasses import replace

from gimbal.critics.actions import ActionValues
from gimbal.engines.episodes import Episodes
from gimbal.environments.bounded_cart import out_of_bounds
from gimbal.environments.gym import Gymnasium
from gimbal.learning.updates.reflex import ReflexActorCritic
from gimbal.policies.reflex import Reflexive
from gimbal.recipes.papers.control.sac import sac
from gimbal.runtime.run import HeldOut, UpdateRun

CART = "gimbal.environments.bounded_cart:held_cart@gust=0.5,fragile=1"


def bresa() -> UpdateRun:
    """Bresa (arXiv:2503.21989) on a cart under blows: SAC decides once a second, and a reflex keeps it inside at every step."""
    base = sac()
    return replace(
        base,
        policy=Reflexive(observations=4, actions=1),
        tasks=Gymnasium(environment=CART, seed=1),
        held_out=HeldOut(tasks=Gymnasium(environment=CART, seed=2, size=20), samples=1, engine=Episodes(slots=20)),
        update=ReflexActorCritic(
            critic=ActionValues(observations=4, actions=1),
            unsafe=out_of_bounds,
            gamma=0.95,
            tau=0.02,
            temperature_learning_rate=1e-3,
            optimization=base.learns.optimization,
        ),
    )
