from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.polychromic import Polychromic
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run


def polychromic() -> Run:
    """Polychromic objective (arXiv:2509.25424): rewards sets of answers by reward times diversity (here: with reasoning or without).

    Two epochs per batch, as published.
    """
    run = grpo()
    return replace(
        run,
        rewards=(ReasoningScore(), Pattern(name="worked", weight=0.0)),
        advantage=Polychromic(size=2, kinds="score/worked"),
        optimization=replace(run.optimization, epochs=2),
    )
