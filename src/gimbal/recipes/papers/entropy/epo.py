from __future__ import annotations

from dataclasses import replace

from gimbal.controllers.two_phase_decay import TwoPhaseDecay
from gimbal.dataflow.filters.step_turns import StepTurns
from gimbal.objectives.regularisers.entropy_smoothing import EntropySmoothing
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run

TURNS = 4


def epo() -> Run:
    """EPO (arXiv:2509.22576): an entropy bonus that keeps each reasoning step's entropy near its history.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    run = grpo()
    return replace(
        run,
        filters=(StepTurns(separator=" "),),
        regularisers=(EntropySmoothing(centres=(0.0,) * TURNS),),
        controllers={"regularisers.0.smoothing": TwoPhaseDecay(steps=run.steps)},
    )
