from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.gae import GAE
from gimbal.advantages.shapings.whitened import Whitened
from gimbal.critics.tokens import HiddenValue
from gimbal.learning.optimization import Optimization
from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio
from gimbal.objectives.values.value_loss import ValueLoss
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def ppo() -> Run:
    """PPO (arXiv:1707.06347) on text: a value head on the policy's hidden states, undiscounted GAE, one rollout per prompt."""
    return replace(
        grpo(),
        prompts_per_step=128,
        num_generations=1,
        advantage=GAE(gamma=1.0, lam=0.95),
        shaping=(Whitened(),),
        objective=ClippedRatio(),
        regularisers=(ValueLoss(clip=0.2),),
        aggregation=TokenMean(),
        critic=HiddenValue(hidden=(64,)),
        optimization=Optimization(learning_rate=1e-4, critic_learning_rate=1e-3, epochs=2, minibatches=2),
    )
