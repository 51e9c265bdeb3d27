from __future__ import annotations

from dataclasses import replace

from gimbal.critics.actions import ActionValues
from gimbal.learning.updates.flow_q import FlowQ
from gimbal.policies.one_step import OneStep
from gimbal.recipes.papers.offline.iql import iql
from gimbal.runtime.run import UpdateRun


def fql() -> UpdateRun:
    """FQL (arXiv:2502.02538) on recorded episodes of Pendulum-v1: a one-step policy climbs Q and stays near a flow that clones."""
    base = iql()
    return replace(
        base,
        policy=OneStep(observations=3, actions=1, bound=2.0),
        update=FlowQ(
            critic=ActionValues(observations=3, actions=1, bound=2.0, layer_norm=True),
            gamma=0.95,
            tau=0.02,
            alpha=2.0,  # published: 10, with which it stays nearer to the data's many poor actions
            optimization=base.learns.optimization,
        ),
    )
