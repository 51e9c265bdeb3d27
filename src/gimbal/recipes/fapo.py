from __future__ import annotations

from dataclasses import replace

from gimbal.objectives import ClippedRatio
from gimbal.ops import TokenMean
from gimbal.recipes.grpo import grpo
from gimbal.rewards.flaw_penalty import FlawPenalty
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.rewards.working_steps import WorkingSteps
from gimbal.runtime.run import Run


def fapo() -> Run:
    """FAPO (arXiv:2510.22543): a right answer without sound working loses half of its reward, so that guesses are outgrown."""
    judge = WorkingSteps(measure="flawed", separator=" ", chained=True)
    return replace(
        grpo(),
        rewards=(ReasoningScore(weight=2.0), FlawPenalty(outcome=ReasoningScore(name="right"), judge=judge)),
        objective=ClippedRatio(clip_high=0.28),
        aggregation=TokenMean(),
    )
