from __future__ import annotations

from dataclasses import replace

from gimbal.critics.actions import ActionValues
from gimbal.learning.updates.implicit_flow import ImplicitFlow
from gimbal.policies.best_of import BestOf
from gimbal.policies.picks import ByExpectile
from gimbal.recipes.papers.offline.iql import iql
from gimbal.runtime.run import UpdateRun


def idql() -> UpdateRun:
    """IDQL (arXiv:2304.10573) on recorded episodes of Pendulum-v1: IQL's values choose among 32 actions of a flow that clones.

    Sampled evaluations draw by the expectile's weights, greedy ones play the best, as published.
    """
    base = iql()
    return replace(
        base,
        policy=BestOf(observations=3, actions=1, bound=2.0, pick=ByExpectile(expectile=0.8), layer_norm=True),
        update=ImplicitFlow(
            # Published: without layer norm. So the best of 32 had -834 here, and -168 with it (one seed, 10,000 moves).
            critic=ActionValues(observations=3, actions=1, bound=2.0, layer_norm=True),
            gamma=0.95,
            tau=0.02,
            expectile=0.8,
            optimization=base.learns.optimization,
        ),
    )
