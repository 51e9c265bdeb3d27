from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.reward_decoupled import RewardDecoupled
from gimbal.dataflow.filters.no_trade_off import NoTradeOff
from gimbal.objectives.regularisers.kl_penalty import KLPenalty
from gimbal.objectives.regularisers.right_likelihood import RightLikelihood
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.overlong import OverlongPenalty
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run


def lightning_rl() -> Run:
    """LightningRL (arXiv:2603.13319): few decisions for speed, separately normalised rewards, a likelihood term on correct answers.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        rewards=(ReasoningScore(), OverlongPenalty(limit=64, zone=64, name="speed")),
        filters=(NoTradeOff(right="reasoning", name="speed"),),
        advantage=RewardDecoupled(rewards=("reasoning", "speed"), ddof=0),
        regularisers=(RightLikelihood(right="reasoning"), KLPenalty(coef=0.01)),
    )
