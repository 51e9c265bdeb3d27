from __future__ import annotations

from dataclasses import replace

from gimbal.objectives.surrogates.two_channel_ratio import TwoChannelRatio
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.rewards.working_steps import WorkingSteps
from gimbal.runtime.run import Run


def hdpo() -> Run:
    """HDPO (arXiv:2604.08545): a second surrogate rewards fewer reasoning steps, among correct answers only.

    Four updates per batch: at a ratio of 1 the two surrogates have the same gradient as one.
    """
    run = grpo()
    return replace(
        run,
        rewards=(
            ReasoningScore(weight=0.9),
            Pattern(weight=0.1),
            WorkingSteps(measure="economy", separator=" ", name="economy"),
        ),
        objective=TwoChannelRatio(outcome="reasoning", economy="economy"),
        optimization=replace(run.optimization, minibatches=4),
    )
