from __future__ import annotations

from dataclasses import replace

from gimbal.objectives.surrogates.two_channel_ratio import TwoChannelRatio
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.rewards.tool_calls import ToolCalls
from gimbal.runtime.run import Run
from gimbal.workflows.dialogue import Dialogue


def hdpo() -> Run:
    """HDPO (arXiv:2604.08545): a calculator answers, and a second surrogate rewards fewer calls, among correct answers only.

    Four updates per batch: at a ratio of 1 the two surrogates have the same gradient as one.
    """
    run = grpo()
    return replace(
        run,
        workflow=Dialogue(),
        rewards=(
            ReasoningScore(weight=0.9),
            Pattern(weight=0.1),
            ToolCalls(measure="economy", name="economy"),
        ),
        objective=TwoChannelRatio(outcome="reasoning", economy="economy"),
        optimization=replace(run.optimization, minibatches=4),
    )
