"""The policy gradient of whole sequences, weighted for the policy that sampled them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.composition import SEQUENCE_WEIGHT, Advice, Composition, Verdict
from gimbal.objectives.base import DISCREPANCY, UPDATE, AbstractObjective
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class SequenceWeight(AbstractObjective):
    """A policy gradient weighted by the capped ratio of the whole sequence (VCPO, arXiv:2602.17616).

    loss = -sg[min(w_i, cap)] A logprob,  w_i = exp(sum_t m (logprob - behavior)). Use with SequenceSum. ``ess/sequence``
    is (sum_i w_i)^2 / (N sum_i w_i^2) over the whole minibatch, of uncapped weights; EffectiveSampleSize uses it.

    - logprob = behavior: Reinforce, and ``ess/sequence`` 1.
    - ``cap`` = inf: exact importance weights of sequences, unbiased and heavy-tailed.
    - rows of one decision: TotalRatioWeight without clips.

    Published: cap 8, no clip, no KL. It consumes both ratios, so use no correction.

    Confidence: verified.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE, DISCREPANCY})
    needs: ClassVar[frozenset[str]] = frozenset({"behavior_NS", "advantage_NS", "current_NS"})

    cap: float = 8.0

    def __post_init__(self) -> None:
        if self.cap < 1:
            raise ValueError(
                f"SequenceWeight.cap is {self.cap}; it bounds a weight that is 1 on-policy, so it is at least 1"
            )

    def survey(self, batch: TrainBatch) -> Mapping[str, Tensor]:
        log_weight_N = self._log_weight_N(batch.column("current_NS", self), batch)
        share = ops.effective_sample_share(log_weight_N, batch.mask_NS.any(-1))
        return {"ess/share": share.to(log_weight_N.device).expand(batch.shape[0])}

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        batch = self.surveyed(logprob_NS, batch, "ess/share")
        log_weight_N = self._log_weight_N(logprob_NS.detach(), batch)
        weight_N = ops.ratio(log_weight_N, torch.zeros_like(log_weight_N)).clamp(max=self.cap)
        loss_NS = -weight_N[:, None] * batch.column("advantage_NS", self) * logprob_NS
        return Terms(
            loss_NS.where(batch.mask_NS, 0), {"ess/sequence": batch.facts["ess/share"][:, None] * batch.mask_NS}
        )

    def _log_weight_N(self, logprob_NS: Tensor, batch: TrainBatch) -> Float[Tensor, " N"]:
        difference_NS = logprob_NS.where(batch.mask_NS, 0) - batch.column("behavior_NS", self)
        return difference_NS.double().sum(-1).to(difference_NS.dtype)

    def effects(self) -> frozenset[str]:
        return frozenset({SEQUENCE_WEIGHT})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(ops.TokenMean, ops.SequenceMean):
            yield Advice(
                "SequenceWeight is the gradient of whole sequences, but this aggregation divides it by lengths: use ConstantMean()"
            )
