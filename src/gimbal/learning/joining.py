"""Alone or among several ranks: who takes the steps of a run. torch's distributed half is imported only where it is needed."""

from __future__ import annotations

from collections.abc import Callable

from gimbal.learning.base import AbstractLearner
from gimbal.learning.learner import Learner
from gimbal.learning.ranks import AbstractRanks, SingleProcess, several
from gimbal.policies.base import AbstractPolicy

Start = Callable[[AbstractPolicy, AbstractRanks], Learner]


def join() -> AbstractRanks:
    """Meet the other ranks, if there are any."""
    if not several():
        return SingleProcess()
    from gimbal.learning.distributed import Sharded  # half a second that a single process need not wait

    return Sharded()


def lead(ranks: AbstractRanks, policy: AbstractPolicy, start: Start) -> AbstractLearner:
    """The learner of rank 0's run. Among several ranks ``policy`` stays whole, and shards of a copy are trained."""
    if isinstance(ranks, SingleProcess):
        return start(policy, ranks)
    from gimbal.learning import distributed

    return distributed.lead(ranks, policy, start)


def follow(ranks: AbstractRanks, policy: AbstractPolicy, start: Start) -> None:
    """Run by every other rank: execute rank 0's calls until it has ended."""
    from gimbal.learning import distributed

    distributed.follow(ranks, policy, start)
