"""Sol-RL on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.recipes.papers.denoising.diffusion_nft import diffusion_nft
from gimbal.runtime.run import UpdateRun
from gimbal.workflows.preselected import Preselected
from gimbal.workflows.single import SingleTurn


def sol_rl() -> UpdateRun:
    """Sol-RL (arXiv:2604.06916): the fours of `diffusion_nft`; of 48 candidates in six steps the best and worst 8 are drawn in ten.

    Ours: drafts in the sampler's bfloat16, where the paper has a network in FP4. Not shown here: text-to-image models of billions of
    parameters, and what FP4 saves on a GPU. No guidance.
    """
    run = diffusion_nft()
    assert run.held_out is not None
    return replace(
        run,
        num_generations=48,
        workflow=Preselected(draft=6, keep=16, reward=run.rewards[1]),
        held_out=replace(run.held_out, workflow=SingleTurn()),
    )
