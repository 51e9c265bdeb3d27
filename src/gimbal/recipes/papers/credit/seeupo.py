from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import GroupCentered
from gimbal.objectives.surrogates.turn_sweep import TurnSweep
from gimbal.recipes.papers.agents.terminal import terminal
from gimbal.runtime.run import Run


def seeupo() -> Run:
    """SeeUPO (arXiv:2602.06554), in a terminal: updates turns one at a time, from last to first, each with its own ratio."""
    run = terminal()
    return replace(
        run,
        advantage=GroupCentered(),
        objective=TurnSweep(),
        optimization=replace(run.optimization, learning_rate=1e-4),
    )
