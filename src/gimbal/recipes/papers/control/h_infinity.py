from __future__ import annotations

from gimbal.advantages import GAE
from gimbal.controllers.lagrangian import Lagrangian
from gimbal.critics.mlp import ValueMLP
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.learning.method import Optimization
from gimbal.learning.updates.h_infinity import HInfinity
from gimbal.policies.control import StepSampling
from gimbal.policies.disturbed import Disturbed
from gimbal.runtime.run import HeldOut, UpdateRun

PUSHED = "gimbal.environments.pushed_pendulum:PushedPendulum"


def h_infinity() -> UpdateRun:
    """H-infinity control (arXiv:2404.14405): PPO beside a disturber that pays for its force; evaluated under pushes of other kinds."""
    return UpdateRun(
        policy=Disturbed(observations=3, actions=2),
        engine=Episodes(slots=20),
        tasks=Gymnasium(environment=PUSHED, seed=1),
        held_out=HeldOut(tasks=Gymnasium(environment=f"{PUSHED}@reach=0,gust=1", seed=2, size=20), samples=1),
        sampling=StepSampling(max_length=200),
        prompts_per_step=10,
        num_generations=1,
        max_staleness=1,
        update=HInfinity(
            critic=ValueMLP(observations=3, scale=50.0),
            attenuation=5.0,
            advantage=GAE(gamma=0.9, lam=0.95),
            controllers={"multiplier": Lagrangian(signal="excess/mean", limit=0.0, rate=0.01, initial=0.0, high=5.0)},
            optimization=Optimization(
                learning_rate=2e-3,
                critic_learning_rate=2e-3,
                beta2=0.999,
                decay="linear",
                max_grad_norm=0.5,
                epochs=10,
                minibatches=5,
            ),
        ),
        steps=48,
        threads=1,  # the networks are too small to share
        checkpoint_every=20,
    )
