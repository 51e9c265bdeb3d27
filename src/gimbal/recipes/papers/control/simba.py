from __future__ import annotations

from dataclasses import replace

from gimbal.critics.actions import ActionValues
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.policies.squashed import SquashedGaussian
from gimbal.recipes.papers.control.sac import sac
from gimbal.runtime.run import UpdateRun


def simba() -> UpdateRun:
    """SimBa (arXiv:2410.09754) on Pendulum-v1: SAC with normalized observations, residual blocks with layer norms, and weight decay."""
    run = sac()
    assert isinstance(run.update, SoftActorCritic)
    critic = ActionValues(observations=3, actions=1, bound=2.0, hidden=(128,), blocks=2)
    optimization = replace(run.update.optimization, weight_decay=1e-2)
    return replace(
        run,
        policy=SquashedGaussian(observations=3, actions=1, bound=2.0, hidden=(64,), blocks=1, normalize=True),
        update=replace(run.update, critic=critic, optimization=optimization),
    )
