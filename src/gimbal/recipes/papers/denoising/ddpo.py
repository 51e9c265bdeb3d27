"""DDPO on gimbal-digits-ddim."""

from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import GroupNormalized
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.diffusers import DIFFUSED
from gimbal.policies.paths import PathSampling
from gimbal.recipes.papers.denoising.flow_grpo import flow_grpo
from gimbal.runtime.run import Run


def ddpo() -> Run:
    """DDPO (arXiv:2305.13301), importance sampling: a diffusion model learns to draw fours by the clipped surrogate on steps of DDIM.

    Eta 1, no KL; the last two steps follow the ODE, because their distribution is almost a point. Ours: rewards are normalised within
    the group, where the paper keeps running statistics per prompt. Not shown here: text-to-image models of billions of parameters, and
    a vision-language model as judge. No guidance.
    """
    return replace(
        flow_grpo(),
        policy=Denoiser(model=DIFFUSED),
        sampling=PathSampling(max_length=10, sampler="ddim", noise=1.0, last=-2, reduce="mean"),
        advantage=GroupNormalized(),
        regularisers=(),
        steps=15,
    )
