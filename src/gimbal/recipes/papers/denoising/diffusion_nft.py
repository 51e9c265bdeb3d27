"""DiffusionNFT on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.learning.updates.forward_process import DiffusionNFT
from gimbal.policies.paths import PathSampling
from gimbal.recipes.papers.denoising.flow_grpo import flow_grpo
from gimbal.runtime.run import UpdateRun


def diffusion_nft() -> UpdateRun:
    """DiffusionNFT (arXiv:2509.16117): the fours of `flow_grpo`, from ODE samples only: no path, no log-probability.

    Not shown here: text-to-image models of billions of parameters, with judges of composition, text and taste. No guidance.
    """
    run = flow_grpo()
    return UpdateRun(
        policy=run.policy,
        engine=run.engine,
        tasks=run.tasks,
        held_out=run.held_out,
        sampling=PathSampling(max_length=10, sampler="ode"),
        rewards=run.rewards,
        prompts_per_step=run.prompts_per_step,
        num_generations=run.num_generations,
        max_staleness=run.max_staleness,
        ahead=run.ahead,
        update=DiffusionNFT(draws=8, optimization=replace(run.optimization, minibatches=2)),
        steps=24,
        threads=1,
    )
