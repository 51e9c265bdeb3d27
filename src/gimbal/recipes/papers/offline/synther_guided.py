from __future__ import annotations

from dataclasses import replace
from typing import cast

from gimbal.learning.updates.synthetic_replay import SyntheticReplay
from gimbal.recipes.papers.offline.synther import synther
from gimbal.runtime.run import UpdateRun


def synther_guided() -> UpdateRun:
    """SynthER whose draws are pulled to the policy's actions, as policy-guided diffusion (arXiv:2404.06356) does whole trajectories."""
    base = synther()
    return replace(base, update=replace(cast(SyntheticReplay, base.update), guidance=3.0))
