"""AnyFlow on gimbal-digits."""

from __future__ import annotations

from gimbal.engines.denoising import Denoising
from gimbal.environments.conditions import Conditions
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.flow_map import FlowMap
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.paths import PathSampling
from gimbal.rewards.digits import DigitDistance
from gimbal.runtime.run import HeldOut, UpdateRun


def any_flow() -> UpdateRun:
    """AnyFlow (arXiv:2605.13724): a flow model learns to jump from any noise to any other, on paths that it jumps itself.

    The model draws in as many steps as it is asked for: sampling.max_length. Without a reward: the base model is the teacher of short
    steps, and the policy its own of long ones. Paths are of two steps of the ODE, and states lie between their ends. Left out: the
    stage on data before, and the scores of distribution matching (`dmd2`). Not shown here: video models. No guidance.
    """
    return UpdateRun(
        policy=Denoiser(jumps=True),
        engine=Denoising(slots=64),
        tasks=Conditions(seed=1),
        held_out=HeldOut(tasks=Conditions(seed=2, size=200), samples=1),
        sampling=PathSampling(max_length=2, sampler="ode", spacing="trailing"),
        rewards=(DigitDistance(),),
        prompts_per_step=4,
        num_generations=16,
        max_staleness=0,
        ahead="ready",
        update=FlowMap(optimization=Optimization(learning_rate=2e-3, decay="linear", microbatch_tokens=65536)),
        steps=100,
        threads=1,
    )
