from __future__ import annotations

from dataclasses import replace

from gimbal.controllers.acceptance import Acceptance
from gimbal.recipes.core.dapo import dapo
from gimbal.runtime.run import Run


def codev_r1() -> Run:
    """CodeV-R1's adaptive DAPO (arXiv:2505.24183): requests as many groups as dynamic sampling is expected to drop."""
    return replace(dapo(), controllers={"oversampling": Acceptance()})
