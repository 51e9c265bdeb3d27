from __future__ import annotations

from dataclasses import replace

from gimbal.controllers.two_phase_decay import TwoPhaseDecay
from gimbal.objectives.regularisers.entropy_smoothing import EntropySmoothing
from gimbal.recipes.papers.agents.terminal import terminal
from gimbal.runtime.run import Run

TURNS = 3


def epo() -> Run:
    """EPO (arXiv:2509.22576), in a terminal: an entropy bonus that keeps each turn's entropy near its history.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    run = terminal()
    return replace(
        run,
        regularisers=(EntropySmoothing(centres=(0.0,) * TURNS),),
        controllers={"regularisers.0.smoothing": TwoPhaseDecay(steps=run.steps)},
    )
