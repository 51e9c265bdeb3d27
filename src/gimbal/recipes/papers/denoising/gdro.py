"""GDRO on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.forward_process import DiffusionGDRO
from gimbal.recipes.papers.denoising.diffusion_nft import diffusion_nft
from gimbal.runtime.run import UpdateRun


def gdro() -> UpdateRun:
    """GDRO (arXiv:2601.02036): the fours of `diffusion_nft`, by implicit rewards that rank a group as its rewards do, in twelve steps.

    Ours: groups of 16 that the present policy draws, where the paper ranks six of the base model's. Not shown here: text-to-image
    models of billions of parameters. No guidance.
    """
    optimization = Optimization(learning_rate=3e-4, microbatch_tokens=65536)
    return replace(
        diffusion_nft(), update=DiffusionGDRO(draws=8, beta=5.0, tau=1.0, optimization=optimization), steps=12
    )
