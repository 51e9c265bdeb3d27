"""SAR on gimbal-scales."""

from __future__ import annotations

from dataclasses import replace

from gimbal.objectives.regularisers.staggered_forcing import StaggeredForcing
from gimbal.recipes.papers.denoising.next_scale_sft import next_scale_sft
from gimbal.runtime.run import Run


def sar() -> Run:
    """SAR (arXiv:2512.06421): teacher forcing, and each scale once more after the policy's own coarser one, at one more forward pass.

    What is learned after the own scale is what the policy says after the true one, not the real picture. Not shown here: tokens of
    patches, and pictures of many pixels.
    """
    return replace(next_scale_sft(), regularisers=(StaggeredForcing(coef=0.01),))
