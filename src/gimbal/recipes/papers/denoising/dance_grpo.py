"""DanceGRPO on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import GroupNormalized
from gimbal.policies.paths import PathSampling
from gimbal.recipes.papers.denoising.flow_grpo import flow_grpo
from gimbal.runtime.run import Run


def dance_grpo() -> Run:
    """DanceGRPO (arXiv:2505.07818): constant noise, one start per group, no KL; six of ten steps are sampled, as in its subsets.

    Ours: the six are consecutive, from a random place in each group (MixGRPO's window, arXiv:2507.21802); the paper takes any six. Not
    shown here: text-to-image models of billions of parameters, video, and judges of taste and motion. No guidance.
    """
    return replace(
        flow_grpo(),
        sampling=PathSampling(max_length=10, sampler="dance_sde", noise=0.3, window=6, same_start=True, reduce="mean"),
        advantage=GroupNormalized(),
        regularisers=(),
    )
