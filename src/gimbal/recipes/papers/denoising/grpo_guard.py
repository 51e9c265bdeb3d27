"""GRPO-Guard on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.objectives.surrogates.normalized_step import NormalizedStep
from gimbal.recipes.papers.denoising.flow_grpo import flow_grpo
from gimbal.runtime.run import Run


def grpo_guard() -> Run:
    """GRPO-Guard (arXiv:2510.22319): `flow_grpo` with ratios on one scale at all noise levels, so that the clip acts on both sides.

    Left out: the paper's step weights. Not shown here: text-to-image models of billions of parameters. No guidance.
    """
    return replace(flow_grpo(), objective=NormalizedStep(clip_low=0.05, clip_high=0.05))
