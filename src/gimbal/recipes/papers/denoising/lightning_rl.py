"""LightningRL on gimbal-sudoku."""

from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.reward_decoupled import RewardDecoupled
from gimbal.dataflow.filters.no_trade_off import NoTradeOff
from gimbal.objectives.regularisers.kl_penalty import KLPenalty
from gimbal.objectives.regularisers.right_likelihood import RightLikelihood
from gimbal.policies.commits import MaskedSampling
from gimbal.recipes.papers.denoising.masked_grpo import masked_grpo
from gimbal.rewards.one_of import OneOf
from gimbal.rewards.tokens_per_pass import TokensPerPass
from gimbal.runtime.run import Run


def lightning_rl() -> Run:
    """LightningRL (arXiv:2603.13319): rewards for right answers and for tokens per forward pass, each normalised by itself.

    A likelihood term acts on right answers, and a KL holds to the base. Groups without a right answer, or that do not differ in
    speed, are dropped. As published, all cells above a confidence of 0.9 are committed together, in blocks: of 32 tokens there, of a
    line of the grid here. On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts. Not shown
    here: language models of billions of parameters.
    """
    return replace(
        masked_grpo(),
        sampling=MaskedSampling(max_length=16, block=4, threshold=0.9),
        rewards=(OneOf(), TokensPerPass()),
        filters=(NoTradeOff(right="right", name="speed"),),
        advantage=RewardDecoupled(rewards=("right", "speed"), ddof=0),
        regularisers=(RightLikelihood(right="right"), KLPenalty(coef=0.01)),
    )
