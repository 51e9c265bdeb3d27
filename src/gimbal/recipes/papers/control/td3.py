from __future__ import annotations

from dataclasses import replace

from gimbal.critics.actions import ActionValues
from gimbal.learning.updates.td3 import TD3
from gimbal.policies.deterministic import Deterministic
from gimbal.recipes.papers.control.sac import sac
from gimbal.runtime.run import UpdateRun


def td3() -> UpdateRun:
    """TD3 (arXiv:1802.09477) on Pendulum-v1: a deterministic policy with noise, one update from the buffer per environment step."""
    base = sac()
    return replace(
        base,
        policy=Deterministic(observations=3, actions=1, bound=2.0),
        update=TD3(
            critic=ActionValues(observations=3, actions=1, bound=2.0),
            optimization=base.learns.optimization,
        ),
        steps=1000,
        checkpoint_every=500,
        record_every=100,
    )
