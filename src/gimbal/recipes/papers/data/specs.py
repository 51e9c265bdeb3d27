from __future__ import annotations

from dataclasses import replace

from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run


def specs() -> Run:
    """Metis-SPECS, stage 2 (arXiv:2510.25801): GRPO, rewarded for the answer and half as much for its format.

    Start from the model of `specs_start`: policy.model=runs/NAME/model. Otherwise it is GRPO.
    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), rewards=(ReasoningScore(), Pattern(weight=0.5)))
