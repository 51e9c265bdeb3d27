from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.filters.first_of import FirstOf
from gimbal.engines.native import Native
from gimbal.objectives import KLPenalty
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.majority import Majority
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run


def ttrl() -> Run:
    """TTRL (arXiv:2504.16084): no labels: sixteen rollouts vote on the answer, and eight of them train on agreeing with it.

    The true score comes first with weight 0, so that pass rates measure correctness. Published: 32 of 64, on the test tasks
    themselves. On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        engine=Native(slots=256, precision="int8"),
        rewards=(
            ReasoningScore(weight=0.0),
            Majority(),
            Majority(name="label_right", measure="label", weight=0.0),
            Majority(name="reward_right", measure="truth", weight=0.0),
        ),
        num_generations=16,
        filters=(FirstOf(count=8),),
        regularisers=(KLPenalty(coef=0.001),),
    )
