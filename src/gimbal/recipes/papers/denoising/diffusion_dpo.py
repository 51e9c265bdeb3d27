"""Diffusion-DPO on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.forward_process import DiffusionDPO
from gimbal.recipes.papers.denoising.diffusion_nft import diffusion_nft
from gimbal.runtime.run import UpdateRun


def diffusion_dpo() -> UpdateRun:
    """Diffusion-DPO (arXiv:2311.12908) in the group form of DGPO (arXiv:2510.08425): the fours of `diffusion_nft`, in twelve steps.

    The reference bounds how sure the policy is of a preference, not how far it moves: after 16 steps no sample is near a real digit
    (docs/denoising.md). Not shown here: text-to-image models of billions of parameters, and pairs that people judged. No guidance.
    """
    optimization = Optimization(learning_rate=3e-4, minibatches=2, microbatch_tokens=65536)
    return replace(diffusion_nft(), update=DiffusionDPO(draws=8, beta=5.0, optimization=optimization), steps=12)
