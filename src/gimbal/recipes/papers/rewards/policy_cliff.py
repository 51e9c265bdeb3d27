from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.reward_shaping.cliff_probe import CliffProbe
from gimbal.objectives.regularisers.entropy_bonus import EntropyBonus
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.overlong import OverlongPenalty
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run


def policy_cliff() -> Run:
    """Policy Cliff (arXiv:2507.20150): measures how much a small brevity reward decides among correct answers; entropy softens it.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    small = 0.05
    return replace(
        grpo(),
        rewards=(ReasoningScore(), OverlongPenalty(zone=64, weight=small)),
        reward_shaping=(CliffProbe(omitted="overlong", weight=small),),
        regularisers=(EntropyBonus(),),
    )
