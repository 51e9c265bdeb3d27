"""Each rollout's baseline is the prediction from the others' states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.advantages.shapings.whitened import Whitened
from gimbal.composition import Advice, Composition, Verdict
from gimbal.ops.groups import group_others_mean, group_size
from gimbal.records import TrainBatch


@dataclass(frozen=True)
class CrossRolloutBaseline(AbstractAdvantage):
    """A rollout's reward minus the value predicted from the *other* rollouts of its group (POISE, arXiv:2605.07579).

    A_i = R_i - mean_{j != i} V_j,  V_j the mean of the critic's values along rollout j.

    The baseline may use everything the peers did and stays independent of the answer it judges, so it is unbiased. Use with the critic
    Probe.

    - V constant: R minus a constant.
    - V_j = R_j: LeaveOneOut.
    - a group of one: 0, since it has no peer. Equal rewards do not give 0: the baseline is a prediction.

    ``baseline/explained`` is 1 - var(R - baseline) / var(R) over the rollouts of the batch.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "value_NS", "group_N"})

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        return self._advantage_N(batch)[:, None] * batch.mask_NS

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        left, whole = (x_N.double().var(correction=0) for x_N in (self._advantage_N(batch), batch.return_N))
        return {"baseline/explained": float(1 - left / whole) if whole > 0 else 0.0}

    def _advantage_N(self, batch: TrainBatch) -> Float[Tensor, " N"]:
        group_N = batch.column("group_N", self)
        value_N = ops.sequence_mean(batch.column("value_NS", self), batch.mask_NS)
        advantage_N = batch.return_N - group_others_mean(value_N, group_N)
        return advantage_N.where(group_size(group_N) > 1, 0)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(Whitened):
            yield Advice("CrossRolloutBaseline has no scale in the paper, but Whitened adds one")
