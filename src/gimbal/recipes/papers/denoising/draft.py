"""DRaFT on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.engines.denoising import Denoising
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.gradient_steps import GradientSteps
from gimbal.learning.updates.reward_gradient import RewardGradient
from gimbal.recipes.papers.denoising.diffusion_nft import diffusion_nft
from gimbal.runtime.run import UpdateRun


def draft() -> UpdateRun:
    """DRaFT (arXiv:2309.17400): the fours of `diffusion_nft`, by the gradient of log p(4) through the last three denoising steps.

    On-policy: paths of the present weights, in float32. `update.steps.count=10` is the gradient of the whole path, and 1 with
    `copies=2` DRaFT-LV. Ours: a pull to the base (`update.coef`), without which the classifier is fooled within a few steps. Not shown
    here: text-to-image models of billions of parameters, and learned judges of taste. No guidance.
    """
    return replace(
        diffusion_nft(),
        engine=Denoising(slots=64),
        max_staleness=0,
        ahead="ready",
        update=RewardGradient(
            steps=GradientSteps(count=3),
            coef=10.0,
            optimization=Optimization(learning_rate=3e-4, microbatch_tokens=65536),
        ),
        steps=12,
    )
