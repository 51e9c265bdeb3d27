from __future__ import annotations

from dataclasses import replace

from gimbal.controllers.moving_average import MovingAverage
from gimbal.objectives.curvature_mask import CurvatureMask
from gimbal.recipes.grpo import grpo
from gimbal.runtime.run import Run

RATE = 1e-3


def capo() -> Run:
    """CAPO (arXiv:2510.00819): ten times GRPO's learning rate, and the decisions left out whose own step would go too far."""
    run = grpo()
    return replace(
        run,
        masks=(CurvatureMask(learning_rate=RATE),),
        controllers={"masks.0.learning_rate": MovingAverage(signal="lr", decay=0.0, initial=RATE)},
        optimization=replace(run.optimization, learning_rate=RATE),
    )
