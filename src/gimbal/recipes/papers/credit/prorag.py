from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.shapings.step_blended import StepBlended
from gimbal.dataflow.filters.step_turns import StepTurns
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.rewards.working_steps import WorkingSteps
from gimbal.runtime.run import Run


def prorag() -> Run:
    """ProRAG's dual granularity (arXiv:2601.21912): adds credit for each reasoning step that is correct so far.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        rewards=(ReasoningScore(), WorkingSteps(measure="turns", separator=" ", chained=True, name="right_turns")),
        filters=(StepTurns(separator=" "),),
        shaping=(StepBlended(scores="score/right_turns"),),
    )
