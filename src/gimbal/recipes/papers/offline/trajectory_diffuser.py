from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.replay.once import Once
from gimbal.learning.updates.plan_learning import PlanLearning
from gimbal.policies.drafted_plan import DraftedPlan
from gimbal.recipes.papers.offline.iql import iql
from gimbal.runtime.run import UpdateRun


def trajectory_diffuser() -> UpdateRun:
    """Trajectory Diffuser (arXiv:2407.16142) on recorded episodes of Pendulum-v1: plans are drafted, then denoised five steps.

    Each step learns from 50 whole episodes.
    """
    base = iql()
    rates = replace(base.learns.optimization, minibatches=25)
    return replace(
        base,
        policy=DraftedPlan(observations=3, actions=1, hidden=(128, 128), bound=2.0),
        store=Once(),
        update=PlanLearning(optimization=rates),
        prompts_per_step=50,
        steps=100,
    )
