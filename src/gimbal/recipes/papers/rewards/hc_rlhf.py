from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.reward_shaping.cost_constraint import CostConstraint
from gimbal.advantages.reward_shaping.kl_reward import KLReward
from gimbal.controllers.lagrangian import Lagrangian
from gimbal.recipes.core.rloo import rloo
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.rewards.working_steps import WorkingSteps
from gimbal.runtime.run import Run


def hc_rlhf() -> Run:
    """HC-RLHF (arXiv:2506.08266): a pessimistic constraint on flawed reasoning, checked by a safety test after training."""
    return replace(
        rloo(),
        rewards=(ReasoningScore(), WorkingSteps(measure="flawed", separator=" ", chained=True, name="flawed")),
        reward_shaping=(KLReward(coef=1e-3), CostConstraint(cost="score/flawed", tests=1024)),
        controllers={
            "reward_shaping.1.multiplier": Lagrangian(signal="cost/upper", limit=0.1, rate=0.5, initial=1.0, high=10.0)
        },
    )
