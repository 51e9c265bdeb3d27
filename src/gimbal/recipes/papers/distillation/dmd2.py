"""DMD2 on gimbal-digits."""

from __future__ import annotations

from gimbal.engines.denoising import Denoising
from gimbal.environments.conditions import Conditions
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.distribution_matching import DistributionMatching
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.paths import PathSampling
from gimbal.rewards.digits import DigitDistance
from gimbal.runtime.run import HeldOut, UpdateRun


def dmd2() -> UpdateRun:
    """DMD2 (arXiv:2405.14867): a flow model that draws digits in ten steps learns to draw them in two, from its own scores.

    On-policy, without a reward: the base model is the teacher. Paths are noised anew after each step, as published; the evaluation
    samples so (`eval/data/distance`) and by the ODE (`eval/greedy_data/distance`). The paper's take one step, as docs/few-steps.md
    shows, or four. Left out: the GAN loss on real images. Not shown here: text-to-image models of billions of parameters. No guidance,
    neither of the teacher.
    """
    return UpdateRun(
        policy=Denoiser(batch=32),  # as many as a step has: a call of fewer is padded
        engine=Denoising(slots=64),
        tasks=Conditions(seed=1),
        held_out=HeldOut(tasks=Conditions(seed=2, size=200), samples=1),
        sampling=PathSampling(max_length=2, sampler="cps", noise=1.0, spacing="trailing"),
        rewards=(DigitDistance(),),
        prompts_per_step=2,
        num_generations=16,
        max_staleness=0,
        ahead="ready",
        update=DistributionMatching(
            optimization=Optimization(learning_rate=3e-4, critic_learning_rate=3e-4, beta1=0.0, microbatch_tokens=65536)
        ),
        steps=24,
        threads=1,
    )
