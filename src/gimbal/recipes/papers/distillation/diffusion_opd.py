"""DiffusionOPD on gimbal-digits."""

from __future__ import annotations

from gimbal.engines.denoising import Denoising
from gimbal.environments.conditions import Conditions
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.path_distillation import PathDistillation, Teacher
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.paths import PathSampling
from gimbal.rewards.digits import DigitClass, DigitDistance
from gimbal.runtime.run import HeldOut, UpdateRun

CLASSES = tuple(range(10))


def diffusion_opd() -> UpdateRun:
    """DiffusionOPD (arXiv:2605.15055): a model without guidance learns on its own paths to step as one with guidance does.

    No reward: ``pass_rate`` and the distance to real digits only measure. The ODE in ten steps, as published; ours: one teacher for all
    classes, the base model with guidance 3, where the paper's are trained by RL, one for each task. docs/few-steps.md shows how to name
    several. Not shown here: text-to-image models of billions of parameters.
    """
    return UpdateRun(
        policy=Denoiser(),
        engine=Denoising(slots=64),
        tasks=Conditions(seed=1, labels=CLASSES),
        held_out=HeldOut(tasks=Conditions(seed=2, size=200, labels=CLASSES), samples=1),
        sampling=PathSampling(max_length=10, sampler="ode"),
        rewards=(DigitClass(by="neighbours", scale="hit", name="seen", weight=0.0), DigitDistance()),
        prompts_per_step=10,
        num_generations=4,
        max_staleness=0,
        ahead="ready",
        update=PathDistillation(
            teachers=(Teacher(policy=Denoiser(guidance=3.0)),),
            optimization=Optimization(learning_rate=3e-4, microbatch_tokens=65536),
        ),
        steps=24,
        threads=1,
    )
