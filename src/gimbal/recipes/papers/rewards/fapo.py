from __future__ import annotations

from dataclasses import replace

from gimbal.ops import TokenMean
from gimbal.recipes.papers.trust_region.clip_higher import clip_higher
from gimbal.rewards.flaw_penalty import FlawPenalty
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.rewards.working_steps import WorkingSteps
from gimbal.runtime.run import Run


def fapo() -> Run:
    """FAPO (arXiv:2510.22543): halves the reward of correct answers with flawed reasoning, so that guessing dies out.

    DAPO's clip, in sixteen updates per batch, as published.
    """
    judge = WorkingSteps(measure="flawed", separator=" ", chained=True)
    return replace(
        clip_higher(),
        rewards=(ReasoningScore(weight=2.0), FlawPenalty(outcome=ReasoningScore(name="right"), judge=judge)),
        aggregation=TokenMean(),
    )
