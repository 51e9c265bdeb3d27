from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import GroupCentered
from gimbal.dataflow.replay.recent import Recent
from gimbal.objectives.surrogates.trajectory_balance import TrajectoryBalance
from gimbal.ops import SequenceSum
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def tba() -> Run:
    """TBA (arXiv:2503.18929): trajectory balance with the reference, on data up to eight versions stale and on replayed groups.

    Nothing weights the data by who drew it. Two of five groups come from the batches of the last eight steps, so that the oldest are
    16 versions stale. Published: with some probability a task's rollouts come from a buffer, the better ones likelier.
    """
    return replace(
        grpo(),
        objective=TrajectoryBalance(),
        advantage=GroupCentered(),
        aggregation=SequenceSum(),
        store=Recent(window=8),
        max_staleness=8,
        ahead="full",
    )
