"""Soft actor-critic on Pendulum-v1, from a buffer."""

from __future__ import annotations

import math

from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.buffer import Buffer
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.learning.method import Optimization
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.policies.control import StepSampling
from gimbal.policies.squashed import SquashedGaussian
from gimbal.runtime.run import HeldOut, UpdateRun

EPISODE = 200  # steps of the environment, and as many moves of the weights
MINIBATCH = 128


def sac() -> UpdateRun:
    """SAC on Pendulum-v1: a squashed Gaussian policy, one update from the replay buffer per environment step."""
    return UpdateRun(
        policy=SquashedGaussian(observations=3, actions=1, bound=2.0),
        engine=Episodes(slots=1),
        tasks=Gymnasium(environment="Pendulum-v1", seed=1),
        held_out=HeldOut(tasks=Gymnasium(environment="Pendulum-v1", seed=2, size=20), samples=1),
        sampling=StepSampling(max_length=EPISODE),
        prompts_per_step=1,
        num_generations=1,
        max_staleness=0,
        store=Buffer(capacity=100_000, draw=EPISODE * MINIBATCH),
        update=SoftActorCritic(
            critic=ActionValues(observations=3, actions=1, bound=2.0),
            temperature_learning_rate=1e-3,
            optimization=Optimization(
                learning_rate=1e-3,
                critic_learning_rate=1e-3,
                beta2=0.999,
                max_grad_norm=math.inf,
                minibatches=EPISODE,
            ),
        ),
        steps=50,
        threads=1,  # the networks are too small to share
        checkpoint_every=25,
    )
