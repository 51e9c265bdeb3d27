"""Streams of digits, each after the one before."""

from __future__ import annotations

from dataclasses import replace

from gimbal.environments.conditions import Conditions
from gimbal.learning.updates.forward_process import DiffusionNFT
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.paths import PathSampling
from gimbal.recipes.papers.denoising.diffusion_nft import diffusion_nft
from gimbal.rewards.digits import DigitClass, DigitDistance
from gimbal.runtime.run import HeldOut, UpdateRun
from gimbal.workflows.streamed import Streamed


def streams() -> UpdateRun:
    """Block after block of a stream, each after the policy's own one before (self-forcing), learns to carry on its digit.

    Only the first block is told its class. The reward of a stream is the mean over its blocks, so a block that the next one can read is
    worth more; `diffusion_nft` learns from it. Self-forcing is Self Forcing's (arXiv:2506.08009), whose loss is distribution matching
    (`dmd2`), without a reward. `workflow.past='RealSamples()'` is teacher forcing. Not shown here: video. No guidance.
    """
    run, labels = diffusion_nft(), tuple(range(10))
    return replace(
        run,
        policy=Denoiser(model="gimbal-digits-stream"),
        tasks=Conditions(labels=labels, seed=1),
        held_out=HeldOut(tasks=Conditions(labels=labels, seed=2, size=200), samples=1, workflow=Streamed()),
        workflow=Streamed(),
        sampling=PathSampling(max_length=4, sampler="ode", spacing="trailing"),
        rewards=(
            DigitClass(by="neighbours", scale="hit", name="seen", weight=0.0),
            DigitClass(name="log_p"),
            DigitDistance(),
        ),
        prompts_per_step=4,
        num_generations=8,
        update=DiffusionNFT(draws=2, optimization=run.update.optimization),
    )
