"""AC-Flow on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.critic_matching import CriticWeightedMatching
from gimbal.policies.paths import PathSampling
from gimbal.recipes.papers.denoising.diffusion_nft import diffusion_nft
from gimbal.runtime.run import UpdateRun


def ac_flow() -> UpdateRun:
    """AC-Flow (arXiv:2510.18072): the fours of `flow_grpo`, matched by what they earned above a critic's forecast at each noise.

    From ODE samples only, as `diffusion_nft`. The paper is known by its abstract: its numbers, and its critic's design, are ours. Not
    shown here: text-to-image models of billions of parameters. No guidance.
    """
    return replace(
        diffusion_nft(),
        sampling=PathSampling(max_length=5, sampler="ode", spacing="trailing"),
        update=CriticWeightedMatching(
            optimization=Optimization(
                learning_rate=1e-4, critic_learning_rate=3e-3, minibatches=2, microbatch_tokens=65536
            )
        ),
    )
