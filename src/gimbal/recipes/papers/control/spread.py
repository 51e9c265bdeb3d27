"""PPO of several agents with one policy."""

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

SPREAD = "mpe2.simple_spread_v3"


def spread() -> Run:
    """PPO of three agents that share one policy (IPPO, arXiv:2011.09533) and have three places to cover: MPE's simple_spread."""
    return Run(
        policy=Categorical(observations=18, actions=5),
        engine=Episodes(slots=32),
        tasks=Gymnasium(environment=SPREAD, seed=1),
        held_out=HeldOut(tasks=Gymnasium(environment=SPREAD, seed=2, size=50), samples=1),
        sampling=StepSampling(max_length=25),
        prompts_per_step=32,
        num_generations=1,
        max_staleness=1,
        advantage=GAE(gamma=0.9, lam=0.95),
        shaping=(Whitened(),),
        objective=ClippedRatio(clip_low=0.2, clip_high=0.2),
        regularisers=(ValueLoss(coef=0.5), EntropyBonus(coef=0.002)),
        critic=ValueMLP(observations=18, scale=10.0),
        optimization=Optimization(
            learning_rate=5e-3,
            critic_learning_rate=5e-3,
            beta2=0.999,
            decay="linear",
            max_grad_norm=0.5,
            epochs=5,
            minibatches=4,
        ),
        steps=100,
        threads=1,  # the networks are too small to share
        checkpoint_every=50,
    )
