from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import GroupCentered, Whitened
from gimbal.objectives import KLPenalty
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def reinforce_plus_plus() -> Run:
    """REINFORCE++-baseline (arXiv:2501.03262): group mean, whitening over the batch, PPO clip, small groups, k2 KL in the loss.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        advantage=GroupCentered(),
        shaping=(Whitened(),),
        regularisers=(KLPenalty(coef=1e-3, estimator="k2"),),
        aggregation=TokenMean(),
        num_generations=4,
        prompts_per_step=32,
    )
