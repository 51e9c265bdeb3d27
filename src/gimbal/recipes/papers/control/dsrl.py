from __future__ import annotations

from dataclasses import replace

from gimbal.critics.actions import ActionValues
from gimbal.learning.updates.steered_flow import SteeredFlow
from gimbal.policies.steered import Steered
from gimbal.recipes.papers.control.sac import sac
from gimbal.runtime.run import UpdateRun


def dsrl() -> UpdateRun:
    """DSRL (arXiv:2506.15799) on Pendulum-v1: an actor-critic chooses the noise of a frozen flow, which policy.flow=DIRECTORY names.

    Not shown here: vision-language-action models, and robots.
    """
    base = sac()
    return replace(
        base,
        policy=Steered(observations=3, actions=1, bound=2.0),
        update=SteeredFlow(
            critic=ActionValues(observations=3, actions=1, bound=2.0, layer_norm=True),
            temperature_learning_rate=1e-3,
            optimization=base.learns.optimization,
        ),
    )
