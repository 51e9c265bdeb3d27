from __future__ import annotations

from dataclasses import replace

from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run
from gimbal.workflows.branching import Branching
from gimbal.workflows.single import SingleTurn


def branched() -> Run:
    """Branching rollouts (after TreeRL, arXiv:2506.11902): GRPO where six of the eight fork off the other two at uncertain tokens.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    run = grpo()
    assert run.held_out is not None
    return replace(run, workflow=Branching(), held_out=replace(run.held_out, workflow=SingleTurn()))
