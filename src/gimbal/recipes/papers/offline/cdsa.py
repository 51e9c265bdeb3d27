from __future__ import annotations

from dataclasses import replace

from gimbal.learning.updates.density_gradient import DensityGradient
from gimbal.policies.toward_data import TowardData
from gimbal.recipes.papers.offline.iql import iql
from gimbal.runtime.run import UpdateRun


def cdsa() -> UpdateRun:
    """CDSA (arXiv:2406.07541) on recorded episodes of Pendulum-v1: brings the actions of a frozen policy (policy.base) nearer to them.

    How near is set when it acts: gimbal eval RUN policy.action_weight=0.1 policy.state_weight=0.5.
    """
    base = iql()
    return replace(
        base,
        policy=TowardData(observations=3, actions=1, hidden=(128, 128), bound=2.0),
        update=DensityGradient(optimization=base.learns.optimization),
        steps=20,
    )
