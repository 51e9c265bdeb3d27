"""ReFL on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.learning.updates.gradient_steps import GradientSteps
from gimbal.learning.updates.reward_gradient import RewardGradient
from gimbal.recipes.papers.denoising.draft import draft
from gimbal.runtime.run import UpdateRun


def refl() -> UpdateRun:
    """ReFL (arXiv:2304.05977): `draft` with the reward of the clean sample that one of the last four steps predicts, at random.

    On-policy. One draw a learner step, for all paths. Published: one of the last 11 of 25 steps, rewards up to a limit
    (`update.limit`), and a pre-training loss, which is left out. Not shown here: text-to-image models of billions of parameters, and a
    judge that learned from people. No guidance.
    """
    run = draft()
    return replace(
        run,
        update=RewardGradient(steps=GradientSteps(count=1, late=4), coef=10.0, optimization=run.update.optimization),
    )
