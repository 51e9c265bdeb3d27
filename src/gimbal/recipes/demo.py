"""gimbal-tiny learns to reason: decoupled, one version stale, sampled in int8, in under two minutes on a laptop."""

from __future__ import annotations

from gimbal.advantages.group_normalized import GroupNormalized
from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.engines.native import Native
from gimbal.environments.demonstrations import exam, practice
from gimbal.learning.method import Optimization
from gimbal.objectives.clipped_ratio import ClippedRatio
from gimbal.objectives.truncated_weight import TruncatedWeight
from gimbal.policies.token import CausalLM
from gimbal.records import Sampling
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import HeldOut, Run


def demo() -> Run:
    """gimbal-tiny learns to reason: decoupled, up to one version stale, sampled in int8, in under two minutes on a laptop.

    GRPO with clip-higher and truncated importance weights on reasoning-gym's chain_sum. The policy starts with three ways of
    answering (guessing, sloppy working, careful working) and discovers which one pays.
    """
    return Run(
        policy=CausalLM(),
        engine=Native(slots=128, precision="int8"),
        tasks=practice(),
        held_out=HeldOut(tasks=exam(size=256), samples=4),
        sampling=Sampling(max_length=64),
        rewards=(ReasoningScore(),),
        filters=(ZeroVariance(),),
        prompts_per_step=16,
        num_generations=8,
        max_staleness=1,
        objective=ClippedRatio(clip_low=0.2, clip_high=0.28),
        advantage=GroupNormalized(),
        correction=TruncatedWeight(),
        optimization=Optimization(learning_rate=1e-4),
        steps=50,
    )
