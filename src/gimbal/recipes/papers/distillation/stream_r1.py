"""Stream-R1 on gimbal-digits-stream."""

from __future__ import annotations

from dataclasses import replace

from gimbal.environments.conditions import Conditions
from gimbal.learning.updates.distribution_matching import DistributionMatching
from gimbal.learning.updates.reward_weighted import RewardWeighted
from gimbal.policies.denoiser import Denoiser
from gimbal.recipes.papers.distillation.dmd2 import dmd2
from gimbal.rewards.digits import DigitClass, DigitDistance
from gimbal.runtime.run import HeldOut, UpdateRun
from gimbal.workflows.streamed import Streamed


def stream_r1() -> UpdateRun:
    """Stream-R1 (arXiv:2605.03849): streams distilled into two steps a block, where what a reward says of a rollout weighs its loss.

    `dmd2` on streams: each block follows the policy's own one before, and has to carry on its digit. Rollouts count by exp(reward),
    blocks and pixels by how much the reward depends on them. Left out: several rewards whose shares move. Not shown here: video models,
    and a vision-language model as judge. No guidance.
    """
    run, labels = dmd2(), tuple(range(10))
    assert isinstance(run.update, DistributionMatching)
    return replace(
        run,
        policy=Denoiser(model="gimbal-digits-stream", batch=32),
        tasks=Conditions(labels=labels, seed=1),
        held_out=HeldOut(tasks=Conditions(labels=labels, seed=2, size=200), samples=1, workflow=Streamed()),
        workflow=Streamed(),
        rewards=(DigitClass(), DigitDistance()),
        prompts_per_step=8,
        num_generations=2,
        update=replace(run.update, weighted=RewardWeighted()),
    )
