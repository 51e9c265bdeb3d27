from __future__ import annotations

from dataclasses import replace

from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.environments.minari import Minari
from gimbal.learning.updates.mean_flow import MeanFlow
from gimbal.policies.joint_flow import JointFlow
from gimbal.recipes.papers.offline.iql import iql
from gimbal.runtime.run import HeldOut, UpdateRun


def coflow() -> UpdateRun:
    """CoFlow (arXiv:2605.01457) on recorded partings of three agents: one flow draws what all do at once, in one step.

    As if each drew for itself: gimbal eval RUN policy.alone=true.
    """
    base, tasks = iql(), Minari(dataset="gimbal/line/partings-v0")
    return replace(
        base,
        policy=JointFlow(observations=3, actions=3, agents=3),
        tasks=tasks,
        held_out=HeldOut(
            tasks=Gymnasium(environment=tasks.source, seed=2, size=200), samples=1, engine=Episodes(slots=100)
        ),
        update=MeanFlow(optimization=base.learns.optimization),
    )
