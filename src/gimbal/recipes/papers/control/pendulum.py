"""PPO on Pendulum-v1."""

from __future__ import annotations

from gimbal.advantages import GAE, Whitened
from gimbal.critics.mlp import ValueMLP
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.learning.optimization import Optimization
from gimbal.objectives import ClippedRatio, ValueLoss
from gimbal.policies.control import StepSampling
from gimbal.policies.gaussian import Gaussian
from gimbal.runtime.run import HeldOut, Run


def pendulum() -> Run:
    """PPO with GAE on Pendulum-v1: a Gaussian policy, whole episodes, up to one version stale."""
    return Run(
        policy=Gaussian(observations=3, actions=1),
        # All episodes are 200 steps long, so a batch is stale only if two run at a time.
        engine=Episodes(slots=20),
        tasks=Gymnasium(environment="Pendulum-v1", seed=1),
        held_out=HeldOut(tasks=Gymnasium(environment="Pendulum-v1", seed=2, size=20), samples=1),
        sampling=StepSampling(max_length=200),
        prompts_per_step=10,
        num_generations=1,
        max_staleness=1,
        advantage=GAE(gamma=0.9, lam=0.95),
        shaping=(Whitened(),),
        objective=ClippedRatio(clip_low=0.2, clip_high=0.2),
        regularisers=(ValueLoss(coef=0.5),),
        critic=ValueMLP(observations=3, scale=50.0),
        # Minibatches of two episodes: with one, returns fell back on the way, and one of five seeds ended at -231.
        optimization=Optimization(
            learning_rate=2e-3,
            critic_learning_rate=2e-3,
            beta2=0.999,
            decay="linear",
            max_grad_norm=0.5,
            epochs=10,
            minibatches=5,
        ),
        steps=48,
        threads=1,  # the networks are too small to share
        checkpoint_every=20,
    )
