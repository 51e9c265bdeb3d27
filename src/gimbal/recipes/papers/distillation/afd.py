"""AFD on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.adversarial_flow import AdversarialFlow
from gimbal.learning.updates.discriminator import RealSamples
from gimbal.policies.paths import PathSampling
from gimbal.recipes.papers.distillation.dmd2 import dmd2
from gimbal.rewards.digits import DigitClass, DigitDistance
from gimbal.runtime.run import UpdateRun


def afd() -> UpdateRun:
    """AFD (arXiv:2605.26105): a flow model of all digits learns from real fours alone what its teacher draws, by a discriminator.

    On-policy, without a reward: those of the recipe only measure. The teacher is a black box whose samples are known: scikit-learn's
    fours, or those of your own file (`update.real.file`). Ours: the rates, and a pull of 0.1 to the base, without which it left the
    data. A longer run does too, once the discriminator is sure of every sample (`discriminator/apart`). Not shown here: large teachers
    of pictures or video that only answer. No guidance.
    """
    return replace(
        dmd2(),
        sampling=PathSampling(max_length=6, sampler="ode"),
        rewards=(DigitClass(wanted=4, scale="hit", weight=0.0), DigitDistance(wanted=4)),
        prompts_per_step=4,
        update=AdversarialFlow(
            real=RealSamples(only=(4,)),
            coef=0.1,
            optimization=Optimization(learning_rate=3e-4, critic_learning_rate=1e-3, microbatch_tokens=65536),
        ),
        steps=30,
    )
