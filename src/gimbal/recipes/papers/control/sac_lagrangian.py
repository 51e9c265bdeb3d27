from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.reward_shaping.priced_cost import PricedCost
from gimbal.critics.actions import ActionValues
from gimbal.environments.gym import Gymnasium
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.policies.squashed import SquashedGaussian
from gimbal.recipes.papers.control.ppo_lagrangian import BLOWN, LIMIT
from gimbal.recipes.papers.control.sac import sac
from gimbal.runtime.run import UpdateRun


def sac_lagrangian() -> UpdateRun:
    """SAC whose costs have a price that rises above a limit, on a cart under blows: old steps pay the present price."""
    run = sac()
    assert isinstance(run.update, SoftActorCritic) and run.held_out is not None
    return replace(
        run,
        policy=SquashedGaussian(observations=2, actions=1),
        tasks=Gymnasium(environment=BLOWN, seed=1),
        held_out=replace(run.held_out, tasks=Gymnasium(environment=BLOWN, seed=2, size=20)),
        update=replace(
            run.update,
            critic=ActionValues(observations=2, actions=1),
            gamma=0.95,
            tau=0.02,
            price=PricedCost(multiplier=0.5),
            # A tenth of the steps of a learner step of PPO come in here, so it moves a tenth as far.
            controllers={"price.multiplier": replace(LIMIT, rate=0.02)},
        ),
    )
