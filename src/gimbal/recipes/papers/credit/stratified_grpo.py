from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.stratified import Stratified
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run


def stratified_grpo() -> Run:
    """Stratified GRPO (arXiv:2510.06214): normalises answers with and without reasoning separately, then blends them.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        rewards=(ReasoningScore(), Pattern(name="worked", weight=0.0)),
        advantage=Stratified(strata="score/worked"),
    )
