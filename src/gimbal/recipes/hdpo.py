from __future__ import annotations

from dataclasses import replace

from gimbal.objectives.two_channel_ratio import TwoChannelRatio
from gimbal.recipes.grpo import grpo
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.rewards.working_steps import WorkingSteps
from gimbal.runtime.run import Run


def hdpo() -> Run:
    """HDPO (arXiv:2604.08545): few steps of working pay among right answers only, in a second surrogate."""
    return replace(
        grpo(),
        rewards=(
            ReasoningScore(weight=0.9),
            Pattern(weight=0.1),
            WorkingSteps(measure="economy", separator=" ", name="economy"),
        ),
        objective=TwoChannelRatio(outcome="reasoning", economy="economy"),
    )
