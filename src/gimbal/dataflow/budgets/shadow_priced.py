"""More rollouts where outcomes vary more, at one common price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gimbal.dataflow.base import AbstractBudgetSpec, Plan
from gimbal.dataflow.budgets.sizes import AbstractSuccessBudget
from gimbal.dataflow.success import AbstractSuccessTracking
from gimbal.ops.allocation import shared
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class ShadowPriced(AbstractSuccessTracking, AbstractBudgetSpec):
    """n proportional to the root of the variance of a task's outcomes, at a mean of num_generations (the square-root law of
    Rollout-GDRO, arXiv:2601.19280).

    Tasks dispatched together are in ``bins`` by their expected pass rate p; v is the mean of p (1 - p) in a bin. The
    variance of the gradient is about sum_q v_q / n_q, and the n_q that make it least under sum_q n_q = num_generations x tasks are
    sqrt(v_q / price): the price of a rollout is the multiplier of that constraint. Cut to [``least``, ``most``]. p is the mean of a
    Beta model of the task, a <- prior + fresh (a - prior) + sum r on a visit with outcomes r in [0, 1], and a <- prior + fade (a -
    prior) in each step, b alike.

    - ``bins`` = 1, or one expected pass rate for all: as Fixed.
    - ``least`` = ``most`` = num_generations: as Fixed.

    A task that replaces a dropped one is a round by itself, and gets num_generations. Outcomes are the reward ``name``, or the whole
    score if it is empty, clipped to [0, 1]. Tasks must repeat for this to work: tasks.size=256.

    Published: a bandit over numbers of rollouts, whose losses this law explains.

    Confidence: partial; the law is the paper's analysis; ours: solving it instead of its bandit (its loss, the surrogate, is 0 on
    policy), and p per task instead of pass@k of the bin.
    """

    bins: int = 10
    least: int = 2
    most: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bins < 1 or not 2 <= self.least <= self.most:
            raise ValueError(
                f"ShadowPriced has bins {self.bins} (1 or more) and gives {self.least} to {self.most} rollouts: let 2 <= least <= most"
            )

    def start(self, rollouts: int, max_length: int) -> ShadowPricedBudget:
        return ShadowPricedBudget(self, rollouts, max_length)


class ShadowPricedBudget(AbstractSuccessBudget):
    """The live half of ``ShadowPriced``."""

    def __init__(self, spec: ShadowPriced, rollouts: int, max_length: int) -> None:
        if not spec.least <= rollouts <= spec.most:
            raise ValueError(
                f"ShadowPriced gives {spec.least} to {spec.most} rollouts, and num_generations={rollouts} is their mean: let it lie "
                "between"
            )
        super().__init__(type(spec).__name__, model=spec.model(), reward=spec.name)
        self.spec, self.mean, self.max_length = spec, rollouts, max_length

    def plan(self, tasks: Sequence[Task]) -> list[Plan]:
        chance_P = self.model.chance([task.id for task in tasks])
        bin_P = np.minimum((chance_P * self.spec.bins).astype(int), self.spec.bins - 1)
        spread_P = chance_P * (1 - chance_P)
        variance_P = np.array([spread_P[bin_P == own].mean() for own in bin_P])
        count_P = shared(np.sqrt(variance_P), self.mean * len(tasks), self.spec.least, self.spec.most)
        return [Plan(rollouts=int(count), max_length=self.max_length) for count in count_P]
