from __future__ import annotations

from dataclasses import replace
from typing import cast

from gimbal.learning.updates.implicit_family import ImplicitFamily
from gimbal.learning.updates.implicit_q import ImplicitQ
from gimbal.policies.balanced import Balanced
from gimbal.recipes.papers.offline.iql import iql
from gimbal.runtime.run import UpdateRun


def famo2o() -> UpdateRun:
    """FamO2O (arXiv:2310.17966) on recorded episodes of Pendulum-v1: IQL of all balances at once, and a model that picks by state."""
    base = iql()
    was = cast(ImplicitQ, base.update)
    update = ImplicitFamily(
        critic=was.critic, gamma=was.gamma, tau=was.tau, expectile=was.expectile, optimization=was.optimization
    )
    return replace(base, policy=Balanced(observations=3, actions=1, bound=2.0, high=2.0), update=update)
