from __future__ import annotations

from dataclasses import replace
from typing import cast

from gimbal.learning.updates.synthetic_replay import SyntheticReplay
from gimbal.learning.updates.td3 import TD3
from gimbal.recipes.papers.offline.td3_bc import td3_bc
from gimbal.runtime.run import UpdateRun


def synther() -> UpdateRun:
    """SynthER (arXiv:2303.06614) on recorded episodes of Pendulum-v1: TD3+BC learns half from transitions that a flow draws."""
    base = td3_bc()
    # Published: a share of 1 offline.
    return replace(base, update=SyntheticReplay(inside=cast(TD3, base.update)), steps=50)
