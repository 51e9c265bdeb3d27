from __future__ import annotations

from dataclasses import replace
from typing import cast

from gimbal.dataflow.replay.transitions import Transitions
from gimbal.learning.updates.dyna import Dyna
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.policies.dynamics import Dynamics
from gimbal.recipes.papers.control.sac import sac
from gimbal.runtime.run import UpdateRun


def mbpo() -> UpdateRun:
    """MBPO (arXiv:1906.08253) on Pendulum-v1: SAC on branches imagined by a learned world model, ten updates per environment step."""
    run = sac()
    return replace(
        run,
        store=Transitions(capacity=100_000, minibatch=128, update_to_data=10.0, learning_starts=200),
        update=Dyna(
            inside=cast(SoftActorCritic, run.update),
            world=Dynamics(observations=3, actions=1),
        ),
        steps=100,
        checkpoint_every=50,
        record_every=10,
    )
