"""Flow-GRPO on gimbal-digits."""

from __future__ import annotations

from gimbal.advantages.estimators.batch_scaled import BatchScaled
from gimbal.engines.denoising import Denoising
from gimbal.environments.conditions import Conditions
from gimbal.learning.optimization import Optimization
from gimbal.objectives.regularisers.step_kl import StepKL
from gimbal.objectives.surrogates.clipped_step import ClippedStep
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.paths import PathSampling
from gimbal.rewards.digits import DigitClass, DigitDistance
from gimbal.runtime.run import HeldOut, Run

WANTED = 4  # gimbal-digits draws it least often: 7 in 100


def flow_grpo() -> Run:
    """Flow-GRPO (arXiv:2505.05470): a flow model that draws digits learns to draw fours, by an SDE with the marginals of its ODE.

    Ten steps, nine of them sampled; clipped ratios in two updates per batch, exact KL to the base, a bfloat16 sampler one version
    stale. No guidance. Reward: log p(4) of a linear classifier. ``pass_rate`` is another classifier's verdict, on data that the first
    has not seen; the evaluation samples with the SDE (``eval/pass@1``) and with the ODE, as a user would (``eval/greedy``). Not shown
    here: text-to-image models of billions of parameters, with judges of composition, text and taste.
    """
    return Run(
        policy=Denoiser(),
        engine=Denoising(slots=64, precision="bfloat16"),
        tasks=Conditions(seed=1),
        held_out=HeldOut(tasks=Conditions(seed=2, size=200), samples=1),
        sampling=PathSampling(max_length=10, sampler="flow_sde", noise=0.7, reduce="mean"),
        rewards=(
            DigitClass(wanted=WANTED, by="neighbours", scale="hit", name="seen", weight=0.0),
            DigitClass(wanted=WANTED, name="log_p"),
            DigitDistance(wanted=WANTED),
        ),
        prompts_per_step=8,
        num_generations=16,
        max_staleness=1,
        ahead="full",
        objective=ClippedStep(clip_low=0.2, clip_high=0.2),
        regularisers=(StepKL(coef=0.04),),
        advantage=BatchScaled(limit=5.0),
        optimization=Optimization(learning_rate=3e-4, minibatches=2, microbatch_tokens=65536),
        steps=24,
        threads=1,  # the network is too small to share
    )
