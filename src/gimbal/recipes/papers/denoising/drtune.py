"""DRTune on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.learning.updates.reward_gradient import GradientSteps, RewardGradient
from gimbal.recipes.papers.denoising.draft import draft
from gimbal.runtime.run import UpdateRun


def drtune() -> UpdateRun:
    """DRTune (2024): `draft` with three equally distant steps of the whole path, no gradient into the network's input, and paths that
    end at one of the last four steps, at random.

    On-policy. The reward is that of the clean sample that the last of them predicts.
    """
    run = draft()
    return replace(
        run,
        update=RewardGradient(
            steps=GradientSteps(count=3, late=4, spaced=True, detached=True),
            coef=10.0,
            optimization=run.update.optimization,
        ),
    )
