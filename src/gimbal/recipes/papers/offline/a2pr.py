from __future__ import annotations

from dataclasses import replace
from typing import cast

from gimbal.learning.updates.better_actions import BetterActions
from gimbal.learning.updates.td3 import TD3, Imitation
from gimbal.recipes.papers.offline.td3_bc import td3_bc
from gimbal.runtime.run import UpdateRun


def a2pr() -> UpdateRun:
    """A2PR (arXiv:2405.19909) on recorded episodes of Pendulum-v1: TD3+BC, held to the better of the data's and a coder's action."""
    base = td3_bc()
    imitation = Imitation(alpha=20.0, better=BetterActions())  # alpha as in td3_bc, for the same reason; published: 2.5
    return replace(base, update=replace(cast(TD3, base.update), imitation=imitation))
