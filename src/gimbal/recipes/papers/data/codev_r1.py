from __future__ import annotations

from dataclasses import replace

from gimbal.controllers.acceptance import Acceptance
from gimbal.recipes.core.dapo import dapo
from gimbal.runtime.run import Run


def codev_r1() -> Run:
    """Adaptive DAPO of CodeV-R1 (arXiv:2505.24183): asks at once for the groups that dynamic sampling will leave a batch of."""
    return replace(dapo(), controllers={"oversampling": Acceptance()})
