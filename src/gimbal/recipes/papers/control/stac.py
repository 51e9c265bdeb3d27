from __future__ import annotations

from dataclasses import replace

from gimbal.critics.return_distribution import ReturnDistribution
from gimbal.environments.gym import Gymnasium
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.policies.squashed import SquashedGaussian
from gimbal.recipes.papers.control.sac import sac
from gimbal.runtime.run import UpdateRun

RISKY = "gimbal.environments.risky_point:RiskyPoint"


def stac() -> UpdateRun:
    """STAC (arXiv:2601.00737) of a point near a risk: SAC with one critic of a normal return, held back by its deviation."""
    run = sac()
    assert isinstance(run.update, SoftActorCritic) and run.held_out is not None
    return replace(
        run,
        policy=SquashedGaussian(observations=2, actions=2),
        tasks=Gymnasium(environment=RISKY, seed=1),
        held_out=replace(run.held_out, tasks=Gymnasium(environment=RISKY, seed=2, size=20)),
        update=replace(
            run.update, critic=ReturnDistribution(observations=2, actions=2, pessimism=0.5), gamma=0.95, tau=0.02
        ),
        steps=300,
    )
