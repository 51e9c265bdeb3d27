from __future__ import annotations

from dataclasses import replace

from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run


def specs() -> Run:
    """Reinforcement after the cold start of Metis-SPECS (arXiv:2510.25801): GRPO, paid for the answer and half as much for its form.

    Start it from the model of `specs_start`: policy.model=runs/NAME/model. Without that it is GRPO.
    On-policy but for staleness: one update a batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), rewards=(ReasoningScore(), Pattern(weight=0.5)))
