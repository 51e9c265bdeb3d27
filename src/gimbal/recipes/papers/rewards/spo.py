from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.group_centered import GroupCentered
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.overlong import OverlongPenalty
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.rewards.win_rate import ByRewards, WinRate
from gimbal.rewards.working_steps import WorkingSteps
from gimbal.runtime.run import Run


def spo() -> Run:
    """SPO (arXiv:2401.04056): rewards an answer by the share of its group that it beats in two of three: correct, well reasoned, short.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    sound = WorkingSteps(measure="right", separator=" ", chained=True, weight=1.0)
    preference = ByRewards(rewards=(ReasoningScore(), sound, OverlongPenalty(zone=64)))
    return replace(
        grpo(), rewards=(ReasoningScore(weight=0.0), WinRate(preference=preference)), advantage=GroupCentered()
    )
