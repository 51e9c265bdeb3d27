"""A price on cost, and on the uncertainty about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractRewardShaping
from gimbal.advantages.components import added_at_end
from gimbal.composition import Advice, Composition, Verdict
from gimbal.ops.confidence import student_width
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class CostConstraint(AbstractRewardShaping):
    """The reward minus a multiple of the cost, at the upper bound that a later test may find (HC-RLHF, arXiv:2506.08266).

    U = m + k s, m and s the mean and the standard deviation (ddof 1) of the cost C over the N rollouts of the batch;
    k = inflation t_{1-delta, tests-1} / sqrt(tests) + own t_{1-delta, N-1} / sqrt(N): the widths of the bounds on ``tests``
    rollouts the policy never trained on and on the batch.
    R <- (R - multiplier C') / (1 + multiplier),  C' = C + k (C^2 - 2 m C) / (2 s), whose policy gradient is that of U.

    ``cost`` names a fact: "score/NAME" of a reward (with weight 0, so that it is not also a reward) or "truncated". Lagrangian moves
    ``multiplier`` by ``cost/upper``, which is U.

    - ``multiplier`` = 0, where Lagrangian(limit=inf) holds it: the rewards as they are.
    - ``inflation`` = ``own`` = 0: U is the mean, and the constraint that of Safe RLHF (arXiv:2310.12773).
    - equal costs (s = 0): C' = C, a constant that every baseline removes.

    Published: the defaults of their code, except ``normalise``, which is from Safe RLHF: their return is R - multiplier C', and
    their multiplier moves in its logarithm. Their experiment script has ``inflation`` 2 and ``own`` 4. Rollouts of one prompt are not
    independent, so U steers and proves nothing; SafetyTest proves.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS"})

    cost: str = "truncated"
    multiplier: float = 1.0
    delta: float = 0.1
    tests: int = 1000
    inflation: float = 1.0
    own: float = 1.0
    normalise: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1 or self.tests < 2:
            raise ValueError(
                f"CostConstraint looks ahead to a test of level {self.delta} on {self.tests} rollouts; the level lies between 0 and 1, "
                "and the rollouts are two at least"
            )
        if min(self.multiplier, self.inflation, self.own) < 0:
            raise ValueError(
                f"CostConstraint has multiplier {self.multiplier}, inflation {self.inflation} and own {self.own}; below 0 it would "
                "pay for cost: 0 or above"
            )

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        cost_N, mean, std, width = self._measured(batch)
        if std > 0:
            cost_N = cost_N + width * (cost_N.square() - 2 * mean * cost_N) / (2 * std)
        scale = 1 + self.multiplier if self.normalise else 1.0
        scaled_NS = batch.column("reward_NS", self) / scale
        return added_at_end(batch.with_columns({"reward_NS": scaled_NS}), -self.multiplier * cost_N / scale, self)

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        _, mean, std, width = self._measured(batch)
        return {"cost/mean": mean, "cost/upper": mean + width * std}

    def _measured(self, batch: TrainBatch) -> tuple[Float[Tensor, " N"], float, float, float]:
        """The costs, their mean and standard deviation, and what one standard deviation is worth."""
        there_N = batch.mask_NS.any(-1)
        cost_N = batch.column(self.cost, self).detach().double().where(there_N, 0)
        n = int(there_N.sum())
        width = self.inflation * student_width(self.tests, self.delta)
        width += self.own * student_width(n, self.delta) if n > 1 else 0
        return cost_N, float(ops.masked_mean(cost_N, there_N)), float(ops.masked_std(cost_N, there_N, ddof=1)), width

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if any(self.cost == f"score/{reward.name}" and reward.weight for reward in whole.run.rewards):
            yield Advice("CostConstraint prices a cost that is also a reward: give that reward weight 0")
