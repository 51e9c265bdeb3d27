from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.chain_ranked import ChainRanked
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.checklist import Checklist
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.rewards.working_steps import WorkingSteps
from gimbal.runtime.run import Run


def thinkrl_edit() -> Run:
    """ThinkRL-Edit's rewards (arXiv:2601.03467): trains where the answer and a checklist of the reasoning agree on the order.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    first_step = WorkingSteps(measure="right", separator=" ", chained=True, name="first_step")
    return replace(
        grpo(),
        rewards=(ReasoningScore(), Checklist(items=(Pattern(), first_step))),
        advantage=ChainRanked(rewards=("reasoning", "checklist")),
    )
