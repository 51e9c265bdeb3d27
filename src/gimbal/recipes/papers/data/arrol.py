from __future__ import annotations

from dataclasses import replace

from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run
from gimbal.workflows.pruning import Pruning
from gimbal.workflows.single import SingleTurn


def arrol() -> Run:
    """ARRoL (arXiv:2603.24840): GRPO where half of each group's 16 rollouts are pruned early, by a head that predicts their success.

    Token counts and the warm-up fit short sums in 40 steps. As published, what is left is not weighted for what was pruned.
    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    run = grpo()
    assert run.held_out is not None
    return replace(
        run,
        num_generations=16,
        workflow=Pruning(at=8, warm_up=3, reward=run.rewards[0]),
        held_out=replace(run.held_out, workflow=SingleTurn()),
    )
