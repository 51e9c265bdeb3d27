"""PPO on CartPole-v1."""

from __future__ import annotations

from gimbal.advantages import GAE, Whitened
from gimbal.critics.mlp import ValueMLP
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.learning.optimization import Optimization
from gimbal.objectives import ClippedRatio, EntropyBonus, ValueLoss
from gimbal.policies.categorical import Categorical
from gimbal.policies.control import StepSampling
from gimbal.runtime.run import HeldOut, Run


def cartpole() -> Run:
    """PPO with GAE on CartPole-v1: a categorical policy, whole episodes, up to one version stale."""
    return Run(
        policy=Categorical(observations=4, actions=2),
        engine=Episodes(slots=16),
        tasks=Gymnasium(environment="CartPole-v1", seed=1),
        held_out=HeldOut(tasks=Gymnasium(environment="CartPole-v1", seed=2, size=20), samples=1),
        sampling=StepSampling(max_length=500),
        prompts_per_step=16,
        num_generations=1,
        max_staleness=1,
        advantage=GAE(gamma=0.99, lam=0.95),
        shaping=(Whitened(),),
        objective=ClippedRatio(clip_low=0.2, clip_high=0.2),
        regularisers=(ValueLoss(coef=0.5), EntropyBonus(coef=0.01)),
        critic=ValueMLP(observations=4, scale=10.0),
        optimization=Optimization(
            learning_rate=2e-3,
            critic_learning_rate=2e-3,
            beta2=0.999,
            decay="linear",
            max_grad_norm=0.5,
            epochs=4,
            minibatches=4,
        ),
        steps=36,
        threads=1,  # the networks are too small to share
        checkpoint_every=20,
    )
