from __future__ import annotations

from gimbal.advantages import GAE
from gimbal.controllers.lagrangian import Lagrangian
from gimbal.critics.mlp import ValueMLP
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.h_infinity import HInfinity
from gimbal.policies.control import StepSampling
from gimbal.policies.disturbed import Disturbed
from gimbal.runtime.run import HeldOut, UpdateRun

# A disturber that is stronger than what can be recovered from is what the constraint is for.
PUSHED = "gimbal.environments.pushed_pendulum:PushedPendulum"


def h_infinity() -> UpdateRun:
    """H-infinity control (arXiv:2404.14405): PPO of a pendulum beside a disturber that pays for its force.

    Not shown here: legged robots, on which it was published.
    """
    return UpdateRun(
        policy=Disturbed(observations=3, actions=2),
        engine=Episodes(slots=20),
        tasks=Gymnasium(environment=f"{PUSHED}@reach=1.2,spread=0.1", seed=1),
        held_out=HeldOut(
            tasks=Gymnasium(environment=f"{PUSHED}@reach=0,spread=0.1,gust=1.35", seed=2, size=20), samples=1
        ),
        sampling=StepSampling(max_length=200),
        prompts_per_step=10,
        num_generations=1,
        max_staleness=0,
        update=HInfinity(
            critic=ValueMLP(observations=3, scale=50.0),
            attenuation=0.3,
            advantage=GAE(gamma=0.9, lam=0.95),
            controllers={"multiplier": Lagrangian(signal="excess/mean", limit=0.0, rate=0.01, initial=0.0, high=5.0)},
            optimization=Optimization(
                learning_rate=1e-2,
                critic_learning_rate=1e-2,
                beta2=0.999,
                decay="linear",
                max_grad_norm=0.5,
                epochs=5,
                minibatches=5,
            ),
        ),
        steps=24,
        threads=1,  # the networks are too small to share
        checkpoint_every=12,
    )
