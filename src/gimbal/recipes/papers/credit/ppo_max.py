from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.reward_shaping.kl_reward import KLReward
from gimbal.advantages.reward_shaping.running_normalized import RunningNormalized
from gimbal.controllers.delayed import Delayed
from gimbal.critics.tokens import TrunkValue
from gimbal.learning.optimization import Optimization
from gimbal.objectives.values.value_loss import ValueLoss
from gimbal.recipes.core.dapo import LONGEST
from gimbal.recipes.core.ppo import ppo
from gimbal.rewards.overlong import OverlongPenalty
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run


def ppo_max() -> Run:
    """PPO-max (arXiv:2307.04964): PPO with rewards normalised over the run, KL in the reward, and a critic trained before the policy.

    The KL is to the first policy, and the critic starts as that policy's transformer. The clip at ten standard deviations is
    the paper's; rewards of 0 to 5 reach only two.
    """
    return replace(
        ppo(),
        rewards=(ReasoningScore(weight=5.0), OverlongPenalty(limit=LONGEST, zone=LONGEST // 5)),
        reward_shaping=(RunningNormalized(), KLReward(coef=0.05)),
        critic=TrunkValue(),
        regularisers=(ValueLoss(coef=1.0, clip=0.2),),
        controllers={"optimization.learning_rate": Delayed(steps=5, after=1e-4)},
        optimization=Optimization(learning_rate=1e-4, critic_learning_rate=3e-4, epochs=1, minibatches=4),
    )
