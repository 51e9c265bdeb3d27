"""Advantage-weighted matching on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.forward_process import AdvantageWeightedMatching
from gimbal.recipes.papers.denoising.diffusion_nft import diffusion_nft
from gimbal.runtime.run import UpdateRun


def awm() -> UpdateRun:
    """AWM (arXiv:2509.25050): the fours of `diffusion_nft` by the clipped surrogate on the matching loss, in ten steps.

    Nothing keeps it near the base: after 16 steps all samples are classified as fours and none resembles one (docs/denoising.md). Not
    shown here: text-to-image models of billions of parameters, with judges of taste. No guidance.
    """
    optimization = Optimization(learning_rate=3e-4, minibatches=2, microbatch_tokens=65536)
    update = AdvantageWeightedMatching(draws=8, clip=0.05, optimization=optimization)
    return replace(diffusion_nft(), update=update, steps=10)
