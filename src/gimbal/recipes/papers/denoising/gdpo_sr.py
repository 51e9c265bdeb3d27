"""GDPO-SR on gimbal-digits-shown."""

from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.environments.shown_pictures import ShownPictures
from gimbal.learning.updates.forward_process import DiffusionDPO
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.paths import PathSampling
from gimbal.recipes.papers.denoising.diffusion_dpo import diffusion_dpo
from gimbal.rewards.digits import DigitDistance
from gimbal.rewards.refined_digits import Fidelity, TextureAdaptive
from gimbal.runtime.run import HeldOut, UpdateRun


def gdpo_sr() -> UpdateRun:
    """GDPO-SR (arXiv:2603.16769): digits of 8x8 pixels from means over 4x4, in one step; noise makes the samples that it compares.

    A sample begins with the means and noise of 0.8, of which the network is told 0.75. Groups of six are ranked by fidelity and, the
    more a picture is textured, by nearness to real digits; the loss is Diffusion-DPO's over a group. Evaluations are on digits that
    the model has never seen. Published: a generator distilled to one step, samples of the base, two learned judges of
    photographs. Ours: the rate.
    """
    run = diffusion_dpo()
    optimization = replace(run.update.optimization, learning_rate=3e-5)
    tasks = ShownPictures(kinds=("refine",), block=4, seed=1)
    return replace(
        run,
        policy=Denoiser(model="gimbal-digits-shown"),
        tasks=tasks,
        held_out=HeldOut(tasks=replace(tasks, kept_out=True, seed=2, size=256), samples=1),
        sampling=PathSampling(max_length=1, sampler="ode", spacing="trailing", strength=0.8, told=0.75),
        rewards=(TextureAdaptive(), Fidelity(), DigitDistance()),
        prompts_per_step=32,
        num_generations=6,
        steps=24,
        update=DiffusionDPO(advantage=GroupNormalized(eps=1e-8), draws=1, beta=5.0, optimization=optimization),
    )
