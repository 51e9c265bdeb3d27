"""The baseline that leaves the gradient the least variance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.advantages.shapings.whitened import Whitened
from gimbal.composition import SEQUENCE_WEIGHT, Advice, Composition, Verdict
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class MinimumVarianceCentered(AbstractAdvantage):
    """The constant baseline with the least variance of an importance-weighted gradient (VCPO, arXiv:2602.17616).

    A_i = R_i - b,  b = sum_j a_j R_j / sum_j a_j over the group (or, with ``scope`` "batch", over the batch),
    a_j = min(w_j, cap)^2 ||g_j||^2,  w_j = exp(sum_t m (proximal - behavior)),  g_j the gradient of the rollout's summed
    log-probability: one backward pass per rollout. With ``scaled``, A is divided by the scope's standard deviation plus ``eps``.

    - behavior = proximal: weights ||g||^2, the optimal baseline of REINFORCE.
    - equal norms as well: GroupCentered (GroupNormalized if ``scaled``); batch scope: the mean of the batch.
    - all norms 0: the mean too, since nothing distinguishes the rollouts.
    - equal rewards, or a scope of one rollout: A = 0.

    Published: group scope, cap inf. Weights use the policy before the update: exact for one update per batch.

    Confidence: verified; ours: ``cap``; set it to SequenceWeight's where the objective caps the weights.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "group_N", "score_norm_N", "proximal_NS", "behavior_NS"})

    scope: Literal["group", "batch"] = "group"
    cap: float = math.inf
    scaled: bool = False
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.cap <= 0:
            raise ValueError(f"MinimumVarianceCentered.cap is {self.cap}; it bounds a weight (inf is off)")

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        group_N = batch.column("group_N", self)
        label_N = group_N.unique(return_inverse=True)[1] if self.scope == "group" else torch.zeros_like(group_N)
        return_N = batch.return_N
        mean_N = ops.group_mean(return_N, label_N)
        # As an offset from the mean, so that equal rewards and lone rollouts give exactly 0.
        centred_N = (return_N - mean_N).double()
        offset_N = ops.group_mean(centred_N * self._weight_N(batch, label_N), label_N)
        advantage_N = (centred_N - offset_N).to(return_N.dtype)
        if self.scaled:
            scale_N = ops.group_std(return_N, label_N) + self.eps
            advantage_N = (advantage_N / scale_N).where(scale_N > 0, 0)
        return advantage_N[:, None] * batch.mask_NS

    def _weight_N(self, batch: TrainBatch, label_N: Tensor) -> Tensor:
        """a over its mean in the scope; 1 where every norm is 0."""
        log_w_N = (batch.column("proximal_NS", self) - batch.column("behavior_NS", self)).double().sum(-1)
        norm_N = batch.column("score_norm_N", self).detach().double()
        log_N = 2 * (log_w_N.clamp(max=math.log(self.cap)) + norm_N.log())
        # The largest of the scope becomes 1: sequence weights span more than floating point does.
        top_N = log_N.new_full(log_N.shape, -math.inf).scatter_reduce(0, label_N, log_N, "amax")[label_N]
        weight_N = (log_N - top_N).exp().where(top_N > -math.inf, 1.0)
        return weight_N / ops.group_mean(weight_N, label_N)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.updates > 1:
            yield Advice(
                "MinimumVarianceCentered is optimal only for the first update on a batch, but there are several"
            )
        if self.cap not in {weight.cap for weight in whole.doing(SEQUENCE_WEIGHT)}:
            yield Advice(
                "MinimumVarianceCentered.cap differs from SequenceWeight's cap, so it is optimal for another gradient"
            )
        if whole.has(Whitened):
            yield Advice(
                "Whitened after MinimumVarianceCentered moves the baseline away from where the variance is least"
            )
