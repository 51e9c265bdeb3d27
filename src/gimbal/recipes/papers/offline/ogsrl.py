from __future__ import annotations

from dataclasses import replace

from gimbal.controllers.lagrangian import Lagrangian
from gimbal.critics.actions import ActionValues
from gimbal.environments.bounded_cart import out_of_bounds
from gimbal.learning.guardian import Guardian
from gimbal.learning.updates.dyna import Dyna
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.policies.dynamics import Dynamics
from gimbal.policies.squashed import SquashedGaussian
from gimbal.recipes.papers.offline.fisor import fisor
from gimbal.runtime.run import UpdateRun


def ogsrl() -> UpdateRun:
    """OGSRL (arXiv:2505.16242) on recorded episodes of a cart: SAC in a learned world that it may leave neither for data nor bounds.

    Not shown here: records of patients and their treatments.
    """
    base = fisor()
    return replace(
        base,
        policy=SquashedGaussian(observations=2, actions=1),
        update=Dyna(
            inside=SoftActorCritic(
                critic=ActionValues(observations=2, actions=1),
                gamma=0.95,
                tau=0.02,
                temperature_learning_rate=1e-3,
                optimization=base.learns.optimization,
            ),
            world=Dynamics(observations=2, actions=1),
            horizon=5,
            guard=Guardian(price=1.0, unsafe=out_of_bounds, penalty=5.0),
            controllers={
                "guard.price": Lagrangian(signal="guard/outside", limit=0.05, rate=1.0, initial=1.0, high=20.0),
                "guard.penalty": Lagrangian(signal="guard/unsafe", limit=0.0, rate=1.0, initial=5.0, high=20.0),
            },
        ),
    )
