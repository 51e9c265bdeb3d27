from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.shapings.step_blended import StepBlended
from gimbal.recipes.papers.agents.terminal import terminal
from gimbal.rewards.paid import Paid
from gimbal.rewards.solution_turns import SolutionTurns
from gimbal.runtime.run import Run


def prorag() -> Run:
    """ProRAG's dual granularity (arXiv:2601.21912), in a terminal: adds credit for each turn on the way to the answer.

    What a turn is worth is known here, where the paper trains a process reward model on a tree search; left out with it is the
    refinement by its scores. On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    run = terminal()
    assert run.held_out is not None
    return replace(
        run,
        rewards=(Paid(), SolutionTurns()),
        held_out=replace(run.held_out, rewards=()),
        shaping=(StepBlended(scores="score/right_turns"),),
    )
