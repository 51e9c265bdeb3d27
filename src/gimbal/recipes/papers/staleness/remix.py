from __future__ import annotations

from dataclasses import replace

from gimbal.controllers.staircase import Staircase
from gimbal.objectives.regularisers.convex_kl import ConvexKL
from gimbal.objectives.surrogates.moving_clip import MovingClip
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def remix() -> Run:
    """ReMix (arXiv:2507.06892) without replay: a clip that moves with the age of data, and a pull to two anchors, one renewed."""
    run = grpo()
    return replace(
        run,
        objective=MovingClip(),
        regularisers=(ConvexKL(coef=0.001),),
        controllers={"regularisers.0.mix": Staircase(begin=20, every=5)},
        reference_resets=(30,),
        max_staleness=2,
        ahead="full",
        optimization=replace(run.optimization, epochs=2),
    )
