"""GRPO on gimbal-sudoku, a masked language model."""

from __future__ import annotations

from gimbal.advantages import GroupNormalized
from gimbal.engines.unmasking import Unmasking
from gimbal.environments.sudoku import Sudoku
from gimbal.learning.optimization import Optimization
from gimbal.objectives import ClippedRatio
from gimbal.policies.commits import MaskedSampling
from gimbal.policies.masked import MaskedLM
from gimbal.rewards.one_of import OneOf
from gimbal.rewards.tokens_per_pass import TokensPerPass
from gimbal.runtime.run import HeldOut, Run


def masked_grpo() -> Run:
    """GRPO on a masked diffusion model: a network that fills in 4 x 4 grids, its surest cell first, learns to fill them in right.

    Each token's log-probability is evaluated at the very state in which it was committed, as in TraceRL (arXiv:2509.06949; without its
    critic), not estimated from random or whole masks (d1, arXiv:2504.12216). One cell a pass, all cells in one block, a bfloat16
    sampler one version stale. ``reward/speed/mean`` reports the tokens of a forward pass, which earn nothing. On-policy except for
    staleness: one update per batch, at a ratio of 1, so the clip never acts. Not shown here: language models of billions of parameters.
    """
    return Run(
        policy=MaskedLM(),
        engine=Unmasking(slots=64, precision="bfloat16"),
        tasks=Sudoku(seed=1),
        held_out=HeldOut(tasks=Sudoku(seed=2, size=100), samples=1),
        sampling=MaskedSampling(max_length=16, threshold=1.0),
        rewards=(OneOf(), TokensPerPass(weight=0.0)),
        prompts_per_step=8,
        num_generations=8,
        max_staleness=1,
        objective=ClippedRatio(),
        advantage=GroupNormalized(),
        optimization=Optimization(learning_rate=2e-4, microbatch_tokens=65536),
        steps=12,
        threads=1,  # the network is too small to share
    )
