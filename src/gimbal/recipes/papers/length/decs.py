from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.position_normalized import PositionNormalized
from gimbal.dataflow.curricula.solved_share import SolvedShare
from gimbal.dataflow.filters.keep_solved import KeepSolved
from gimbal.dataflow.filters.step_turns import StepTurns
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.rewards.working_steps import WorkingSteps
from gimbal.runtime.run import Run


def decs() -> Run:
    """DECS (arXiv:2509.25827): lowers the advantage, position by position, of reasoning that continues after the answer.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        rewards=(
            ReasoningScore(),
            WorkingSteps(measure="necessary", separator=" ", name="necessary"),
            WorkingSteps(measure="count", separator=" ", name="steps"),
        ),
        curriculum=SolvedShare(),
        filters=(KeepSolved(), StepTurns(separator=" ")),
        advantage=PositionNormalized(necessary="score/necessary", steps="score/steps"),
        aggregation=TokenMean(),
    )
