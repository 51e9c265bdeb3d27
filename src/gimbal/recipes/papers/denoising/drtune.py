"""DRTune on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.learning.updates.gradient_steps import GradientSteps
from gimbal.learning.updates.reward_gradient import RewardGradient
from gimbal.recipes.papers.denoising.draft import draft
from gimbal.runtime.run import UpdateRun


def drtune() -> UpdateRun:
    """DRTune (arXiv:2405.00760): `draft` with three equally distant steps, and no gradient into the network's input.

    On-policy. All paths of a learner step end at the same one of the last four steps, drawn at random; the reward is that of the clean
    sample that is predicted there. Not shown here: text-to-image models of billions of parameters, and learned judges of taste. No
    guidance.
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
