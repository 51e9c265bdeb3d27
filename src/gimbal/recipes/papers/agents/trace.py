from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import LeafMean
from gimbal.recipes.papers.agents.terminal import terminal
from gimbal.runtime.run import Run
from gimbal.workflows.turn_branching import TurnBranching


def trace() -> Run:
    """TRACE's second stage (arXiv:2606.11119), for an agent in a terminal: two whole rollouts, and six that continue them.

    The six begin at the end of a turn where the outcome may turn. A turn is credited with the outcomes behind it, less those behind
    the turn before. The first stage, more rollouts for tasks of uncertain outcome, is that of `rollout_gdro`, and is not used here.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    run = terminal()
    assert run.held_out is not None
    return replace(
        run,
        workflow=TurnBranching(inside=run.workflow),
        held_out=replace(run.held_out, workflow=run.workflow),
        advantage=LeafMean(baseline="parent"),
    )
