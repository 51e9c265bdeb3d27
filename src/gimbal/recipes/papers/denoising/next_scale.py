"""GRPO on gimbal-scales, which draws a digit scale after scale."""

from __future__ import annotations

from gimbal.advantages.estimators.batch_scaled import BatchScaled
from gimbal.engines.unmasking import Unmasking
from gimbal.environments.conditions import Conditions
from gimbal.learning.optimization import Optimization
from gimbal.objectives import ClippedRatio
from gimbal.objectives.regularisers.kl_penalty import KLPenalty
from gimbal.policies.commits import MaskedSampling
from gimbal.policies.loading import SCALES
from gimbal.policies.masked import MaskedLM
from gimbal.rewards.digits import DigitClass, DigitDistance
from gimbal.runtime.run import HeldOut, Run

LABELS = tuple(range(10))
IN_SCALES = MaskedSampling(max_length=84, threshold=0.0, blocks=(4, 16, 64))


def next_scale() -> Run:
    """GRPO on a scale-wise autoregressive policy (VAR, arXiv:2404.02905): digits drawn at 2x2, 4x4 and 8x8 pixels, a scale a pass.

    All pixels of a scale are drawn at once, given the coarser ones; each is a decision with its own log-probability, 84 in three
    forward passes. The policy is asked for a class and paid by log p of a linear classifier; ``pass_rate`` is another classifier's
    verdict, on data that the first has not seen. On-policy: the ratio is 1, so the clip never acts. Not shown here: tokens of patches,
    and pictures of many pixels.
    """
    return Run(
        policy=MaskedLM(model=SCALES),
        engine=Unmasking(slots=64),
        tasks=Conditions(labels=LABELS, seed=1),
        held_out=HeldOut(tasks=Conditions(labels=LABELS, seed=2, size=200), samples=1),
        sampling=IN_SCALES,
        rewards=(
            DigitClass(by="neighbours", scale="hit", name="seen", weight=0.0),
            DigitClass(name="log_p"),
            DigitDistance(),
        ),
        prompts_per_step=10,
        num_generations=8,
        max_staleness=0,
        objective=ClippedRatio(),
        regularisers=(KLPenalty(coef=0.01),),
        advantage=BatchScaled(limit=5.0),
        optimization=Optimization(learning_rate=3e-4, microbatch_tokens=65536),
        steps=24,
        threads=1,  # the network is too small to share
    )
