from __future__ import annotations

from dataclasses import replace

from gimbal.critics.actions import ActionValues
from gimbal.engines.early_stop import EarlyStop
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.policies.squashed import SquashedGaussian
from gimbal.recipes.papers.control.sac import sac
from gimbal.runtime.run import UpdateRun

STICKY = "gimbal.environments.sticky_point:StickyPoint"


def least() -> UpdateRun:
    """LEAST (arXiv:2506.13672) of a point among marshes: SAC whose critic cuts off episodes that are not worth finishing."""
    run = sac()
    assert isinstance(run.update, SoftActorCritic) and run.held_out is not None
    return replace(
        run,
        policy=SquashedGaussian(observations=2, actions=2, judges=2),
        engine=Episodes(slots=1, segment=10, early_stop=EarlyStop(gamma=0.95)),
        tasks=Gymnasium(environment=STICKY, seed=1),
        held_out=replace(run.held_out, tasks=Gymnasium(environment=STICKY, seed=2, size=20)),
        update=replace(run.update, critic=ActionValues(observations=2, actions=2), gamma=0.95, tau=0.02),
        steps=300,
    )
