from __future__ import annotations

from dataclasses import replace

from gimbal.critics.actions import ActionValues
from gimbal.learning.updates.td3 import TD3, Imitation
from gimbal.policies.deterministic import Deterministic
from gimbal.recipes.papers.offline.iql import iql
from gimbal.runtime.run import UpdateRun


def td3_bc() -> UpdateRun:
    """TD3+BC (arXiv:2106.06860) on recorded episodes of Pendulum-v1: TD3 whose policy stays near the data's actions."""
    base = iql()
    return replace(
        base,
        policy=Deterministic(observations=3, actions=1, bound=2.0, normalize=True),
        update=TD3(
            critic=ActionValues(observations=3, actions=1, bound=2.0),
            gamma=0.95,
            tau=0.02,
            imitation=Imitation(alpha=20.0),  # returns here lie far from 0, by which lambda divides; published: 2.5
            optimization=base.learns.optimization,
        ),
    )
