from __future__ import annotations

from dataclasses import replace

from gimbal.learning.updates.off_policy import Explore
from gimbal.learning.updates.td3 import TD3
from gimbal.policies.frozen_base import Residual
from gimbal.recipes.papers.control.td3 import td3
from gimbal.runtime.run import UpdateRun


def residual() -> UpdateRun:
    """Residual policy (arXiv:1812.06298) on Pendulum-v1: TD3 corrects a frozen policy, the directory of which policy.base names.

    The critic moves alone at first (update.burn_in). Ours: TD3 in place of DDPG, and a bounded correction (policy.reach).
    """
    base = td3()
    assert isinstance(base.update, TD3)
    return replace(
        base,
        policy=Residual(observations=3, actions=1, bound=2.0),
        update=replace(base.update, explore=Explore(first=0.1, last=0.1, over=0), burn_in=1000),
        steps=500,
        checkpoint_every=250,
    )
