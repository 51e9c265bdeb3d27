"""Words and pictures in one episode: gimbal-tiny plans, gimbal-digits draws."""

from __future__ import annotations

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.engines.denoising import Denoising
from gimbal.engines.native import Native
from gimbal.environments.digit_sums import DigitSums
from gimbal.learning.kinds import OtherKind
from gimbal.learning.optimization import Optimization
from gimbal.learning.separate import SeparateWeights
from gimbal.objectives import ClippedRatio
from gimbal.objectives.regularisers.velocity_penalty import VelocityPenalty
from gimbal.objectives.surrogates.normalized_step import NormalizedStep
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.paths import PathSampling
from gimbal.policies.token import CausalLM, Sampling
from gimbal.rewards.digits import DigitLikeness
from gimbal.rewards.exact import ExactAnswer
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.plan_and_draw import PAINTER, PlanAndDraw


def unigrpo() -> Run:
    """UniGRPO (arXiv:2603.23500): a language model adds, a flow draws the digit that it names, and both learn from the picture alone.

    GRPO on the words, Flow-GRPO with ratios of one scale on the steps, one group advantage; each model has its learning rate. No
    guidance, and a velocity penalty of one weight at all noise levels. The reward is 1 for a picture as near to real digits of the sum
    as nineteen of twenty real ones are; ``other`` judges by the other half of the data, ``plan`` the words alone. Left out: one model
    for both kinds, prompts of more than a class, and a window of sampled steps, since the path has four. Not shown here: a pretrained
    model that writes and draws.
    """
    painter = OtherKind(
        policy=Denoiser(),
        engine=Denoising(),
        sampling=PathSampling(max_length=4, noise=1.0, reduce="mean", spacing="trailing"),
        objective=NormalizedStep(clip_low=0.05, clip_high=0.05),
        regularisers=(VelocityPenalty(coef=0.1),),
    )
    return Run(
        policy=CausalLM(),
        engine=Native(slots=128, precision="int8"),
        workflow=PlanAndDraw(),
        separate={PAINTER: SeparateWeights(kind=painter, learning_rate=3e-4)},
        tasks=DigitSums(seed=1),
        held_out=HeldOut(tasks=DigitSums(seed=2, size=128), samples=4),
        sampling=Sampling(max_length=64),
        rewards=(
            DigitLikeness(),
            DigitLikeness(rows="even", name="other", weight=0.0),
            ExactAnswer(name="plan", weight=0.0),
        ),
        prompts_per_step=8,
        num_generations=16,
        max_staleness=1,
        objective=ClippedRatio(),
        advantage=GroupNormalized(),
        optimization=Optimization(learning_rate=1e-4, minibatches=2, microbatch_tokens=65536),
        steps=40,
        threads=1,
    )
