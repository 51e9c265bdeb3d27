from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.inclusion_normalized import InclusionNormalized
from gimbal.recipes.papers.data.duet import duet
from gimbal.runtime.run import Run
from gimbal.workflows.aborting import Aborting
from gimbal.workflows.single import SingleTurn


def duet_aborts() -> Run:
    """DUET with both controls (arXiv:2605.08441): duet, plus ending some rollouts after their reasoning while others represent them.

    Only the abstract was read. Answers of gimbal-tiny are short, so aborts save few tokens here.
    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    run = duet()
    assert run.held_out is not None
    return replace(
        run,
        workflow=Aborting(),
        held_out=replace(run.held_out, workflow=SingleTurn()),
        advantage=InclusionNormalized(),
    )
