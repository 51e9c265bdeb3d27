from __future__ import annotations

import math

from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.policies.control import StepSampling
from gimbal.policies.squashed import SquashedGaussian
from gimbal.runtime.run import HeldOut, UpdateRun

STEPS = 10  # environment steps per learner step


def sac() -> UpdateRun:
    """SAC (arXiv:1812.05905) on Pendulum-v1: a squashed Gaussian policy, one update from the replay buffer per environment step."""
    return UpdateRun(
        policy=SquashedGaussian(observations=3, actions=1, bound=2.0),
        engine=Episodes(slots=1, segment=STEPS),
        tasks=Gymnasium(environment="Pendulum-v1", seed=1),
        held_out=HeldOut(
            tasks=Gymnasium(environment="Pendulum-v1", seed=2, size=20), samples=1, engine=Episodes(slots=20)
        ),
        sampling=StepSampling(max_length=1000),
        prompts_per_step=1,
        num_generations=1,
        max_staleness=0,
        store=Transitions(capacity=100_000, minibatch=128),
        update=SoftActorCritic(
            critic=ActionValues(observations=3, actions=1, bound=2.0),
            temperature_learning_rate=1e-3,
            optimization=Optimization(
                learning_rate=1e-3,
                critic_learning_rate=1e-3,
                beta2=0.999,
                max_grad_norm=math.inf,
            ),
        ),
        steps=500,
        threads=1,  # the networks are too small to share
        checkpoint_every=250,
        record_every=50,
    )
