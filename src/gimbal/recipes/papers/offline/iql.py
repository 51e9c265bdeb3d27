from __future__ import annotations

import math

from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.recordings import Recordings
from gimbal.engines.episodes import Episodes
from gimbal.engines.playback import Playback
from gimbal.environments.gym import Gymnasium
from gimbal.environments.minari import Minari
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.implicit_q import ImplicitQ
from gimbal.policies.control import StepSampling
from gimbal.policies.gaussian import Gaussian
from gimbal.runtime.run import HeldOut, UpdateRun


def iql() -> UpdateRun:
    """IQL (arXiv:2110.06169) on recorded episodes of Pendulum-v1: values of the data's better actions, then weighted imitation."""
    return UpdateRun(
        policy=Gaussian(observations=3, actions=1),
        engine=Playback(),
        tasks=Minari(dataset="gimbal/pendulum/mixed-v0"),
        held_out=HeldOut(
            tasks=Gymnasium(environment="Pendulum-v1", seed=2, size=20), samples=1, engine=Episodes(slots=20)
        ),
        sampling=StepSampling(max_length=1000),
        prompts_per_step=1,
        num_generations=1,
        max_staleness=0,
        store=Recordings(moves=250, minibatch=128),
        update=ImplicitQ(
            critic=ActionValues(observations=3, actions=1, bound=2.0),
            gamma=0.95,
            tau=0.02,
            expectile=0.8,
            beta=1.0,
            optimization=Optimization(
                learning_rate=1e-3, critic_learning_rate=1e-3, beta2=0.999, max_grad_norm=math.inf
            ),
        ),
        steps=40,
        threads=1,  # the networks are too small to share
        checkpoint_every=20,
    )
