from __future__ import annotations

from dataclasses import replace

from gimbal.engines.native import Native
from gimbal.objectives import KLPenalty
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run
from gimbal.workflows.lookahead import Lookahead
from gimbal.workflows.single import SingleTurn

FADING = ((0, 1.0), (2, 0.75), (3, 0.5), (11, 0.25), (27, 0.0))  # as published, in 40 steps instead of 300


def latr() -> Run:
    """LATR (arXiv:2510.24302): GRPO with a KL, where groups start as trees of likely, dissimilar beginnings, fewer over time.

    Beginnings do not train, where the paper's do; token counts fit short sums.
    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    run = grpo()
    assert run.held_out is not None
    return replace(
        run,
        engine=Native(slots=128, precision="int8", rivals=True),
        workflow=Lookahead(shares=FADING, ages=(2, 4), longest=8),
        held_out=replace(run.held_out, workflow=SingleTurn()),
        regularisers=(KLPenalty(coef=0.01),),
    )
