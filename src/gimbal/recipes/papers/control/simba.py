from __future__ import annotations

import math
from dataclasses import replace

from gimbal.critics.actions import ActionValues
from gimbal.learning.method import Optimization
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.policies.squashed import SquashedGaussian
from gimbal.recipes.papers.control.sac import sac
from gimbal.runtime.run import UpdateRun


def simba() -> UpdateRun:
    """SimBa (arXiv:2410.09754) on Pendulum-v1: SAC with normalized observations, residual blocks with layer norms, and weight decay."""
    return replace(
        sac(),
        policy=SquashedGaussian(observations=3, actions=1, bound=2.0, hidden=(64,), blocks=1, normalize=True),
        update=SoftActorCritic(
            critic=ActionValues(observations=3, actions=1, bound=2.0, hidden=(128,), blocks=2),
            temperature_learning_rate=1e-3,
            optimization=Optimization(
                learning_rate=1e-3, critic_learning_rate=1e-3, beta2=0.999, weight_decay=1e-2, max_grad_norm=math.inf
            ),
        ),
    )
