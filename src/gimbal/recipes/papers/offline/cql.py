from __future__ import annotations

from dataclasses import replace

from gimbal.critics.actions import ActionValues
from gimbal.learning.updates.soft_actor_critic import Conservative, SoftActorCritic
from gimbal.policies.squashed import SquashedGaussian
from gimbal.recipes.papers.offline.iql import iql
from gimbal.runtime.run import UpdateRun


def cql() -> UpdateRun:
    """CQL (arXiv:2006.04779) on recorded episodes of Pendulum-v1: SAC whose critic gives actions outside the data lower values."""
    base = iql()
    return replace(
        base,
        policy=SquashedGaussian(observations=3, actions=1, bound=2.0),
        update=SoftActorCritic(
            critic=ActionValues(observations=3, actions=1, bound=2.0),
            gamma=0.95,
            tau=0.02,
            temperature_learning_rate=1e-3,
            conservative=Conservative(),
            optimization=base.learns.optimization,
        ),
    )
