from __future__ import annotations

from dataclasses import replace

from gimbal.environments.proofreading import Proofreading
from gimbal.objectives import ClippedRatio
from gimbal.ops import TokenMean
from gimbal.policies.token import Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.verdict_place import VerdictAndPlace
from gimbal.runtime.run import HeldOut, Run


def omniverifier_m1() -> Run:
    """OmniVerifier-M1 (arXiv:2605.28805): trains a verifier's verdict and the location of the error as separate streams.

    Start from a judge: `gimbal train proofreading_start`, then `gimbal train omniverifier_m1 policy.model=runs/NAME/model`.
    DAPO's clip and mean, in four updates per batch. gimbal-tiny learns where errors tend to be, but not the verdict (docs/log.md).
    """
    form = Pattern(pattern=r"(<think>.*</think>)?<answer>(right|\d+-\d+)</answer>", weight=0.1)
    run = grpo()
    return replace(
        run,
        tasks=Proofreading(copies=True),
        held_out=HeldOut(tasks=Proofreading(seed=1, size=64), samples=4),
        sampling=Sampling(max_length=32),
        rewards=(VerdictAndPlace(measure="verdict"), VerdictAndPlace(measure="place"), form),
        objective=ClippedRatio(clip_high=0.28),
        aggregation=TokenMean(),
        optimization=replace(run.optimization, minibatches=4),
    )
