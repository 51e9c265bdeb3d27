from __future__ import annotations

from dataclasses import replace

from gimbal.controllers.staircase import Staircase
from gimbal.dataflow.replay.recent import Recent
from gimbal.objectives.regularisers.convex_kl import ConvexKL
from gimbal.objectives.surrogates.moving_clip import MovingClip
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run

TURN = 30  # the step at which the second phase begins


def remix() -> Run:
    """ReMix (arXiv:2507.06892): replays recent groups, with a clip that depends on their age and a pull towards two anchors.

    Two of five groups come from the last two steps. From step 30 nothing is replayed, and the first anchor is that step's policy.
    Published: step 50 or 100, for longer runs.
    """
    run = grpo()
    return replace(
        run,
        objective=MovingClip(),
        regularisers=(ConvexKL(coef=0.001),),
        controllers={"regularisers.0.mix": Staircase(begin=20, every=5)},
        reference_resets=(TURN,),
        store=Recent(until=TURN),
        max_staleness=0,
        optimization=replace(run.optimization, epochs=2),
    )
