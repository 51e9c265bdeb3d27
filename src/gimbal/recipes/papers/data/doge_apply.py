from __future__ import annotations

from dataclasses import replace

from gimbal.objectives import ClippedRatio
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run


def doge_apply() -> Run:
    """DoGe, stage 2 (arXiv:2512.06835): GRPO on whole problems, rewarded for the answer and a little for its format.

    The clip is DAPO's, which needs the four updates per batch to act.
    Start from the model of `doge`: policy.model=runs/NAME/model. Otherwise it is GRPO.
    """
    run = grpo()
    return replace(
        run,
        rewards=(ReasoningScore(), Pattern(weight=0.1)),
        objective=ClippedRatio(clip_high=0.28),
        optimization=replace(run.optimization, minibatches=4),
    )
