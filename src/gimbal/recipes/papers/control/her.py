from __future__ import annotations

from dataclasses import replace

from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.hindsight import Hindsight
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.environments.point_reach import AXES, STEP
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.policies.squashed import SquashedGaussian
from gimbal.recipes.papers.control.sac import sac
from gimbal.runtime.run import HeldOut, UpdateRun

REACH = "gimbal.environments.point_reach:PointReach"


def her() -> UpdateRun:
    """HER (arXiv:1707.01495) on a reaching task paid 0 or -1: SAC that draws four of five steps with a goal that was reached."""
    base, sizes = sac(), {"observations": 3 * AXES, "actions": AXES, "bound": STEP}
    assert isinstance(base.update, SoftActorCritic)
    return replace(
        base,
        policy=SquashedGaussian(**sizes),
        engine=Episodes(slots=1),
        tasks=Gymnasium(environment=REACH, seed=1),
        held_out=HeldOut(tasks=Gymnasium(environment=REACH, seed=2, size=50), samples=1, engine=Episodes(slots=50)),
        store=Transitions(capacity=100_000, minibatch=128, hindsight=Hindsight()),
        update=replace(base.update, gamma=0.98, critic=ActionValues(**sizes)),
        steps=200,
        checkpoint_every=100,
    )
