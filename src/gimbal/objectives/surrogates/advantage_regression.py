"""Log-ratios from the reference fitted to advantages by least squares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.composition import Advice, Composition, Verdict
from gimbal.objectives.base import AbstractObjective
from gimbal.ops import SequenceSum
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class AdvantageRegression(AbstractObjective):
    """Fits beta log(policy / reference) of a row to its advantage (Direct Advantage Policy Optimization, arXiv:2412.18279).

    With h_i = beta sum_t (logprob - reference) and A_i the mean advantage of row i's decisions: loss_i = (h_i - A_i)^2 / 2, with
    ``free`` (h_i - mean_g h - (A_i - mean_g A))^2 / 2. A row's loss is spread evenly over its decisions, so SequenceSum makes it
    the mean over rows. A group holds the candidates for one state: whole answers, or the next steps after one prefix. For steps, train
    the critic beforehand; then A = V(after the step) - V(before it), and GroupCentered drops the second term.

    - policy = reference: the gradient of Reinforce with SequenceSum, beta A.
    - A = 0: the reference is the minimum.
    - two in a group, ``free``: (h_1 - h_2 - (A_1 - A_2))^2 / 8 per row, the squared pair loss of IPO (arXiv:2310.12036).
    - ``free``, all actions scored: the minimum is reference exp(A / beta) / Z for any A; without, only where Z = 1.

    Published: offline, on steps; a squared loss between log-ratio and advantage, scaled. ``beta`` 0.1 is ours.

    Confidence: abstract-only; ours: the form of the loss, ``beta`` and ``free``.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference_NS", "advantage_NS", "group_N"})
    whole_groups: ClassVar[bool] = True

    beta: float = 0.1
    free: bool = False

    def __post_init__(self) -> None:
        if self.beta <= 0:
            raise ValueError(
                f"AdvantageRegression.beta is {self.beta}; it is above 0, and smaller lets the policy move further"
            )

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        reference_NS, advantage_NS = batch.column("reference_NS", self), batch.column("advantage_NS", self)
        precise_NS = logprob_NS.to(torch.promote_types(logprob_NS.dtype, torch.float32))
        fitted_N = self.beta * (precise_NS - reference_NS).where(batch.mask_NS, 0).sum(-1)
        error_N = fitted_N - ops.sequence_mean(advantage_NS, batch.mask_NS)
        group_N, there_N = batch.column("group_N", self), batch.mask_NS.any(-1)
        if self.free:
            # Rows without decisions are no candidates: each a group of its own.
            alone_N = torch.arange(len(group_N), device=group_N.device)
            error_N = error_N - ops.group_mean(error_N, torch.where(there_N, 2 * group_N, 2 * alone_N + 1))
        spread_NS = batch.mask_NS / batch.mask_NS.sum(-1, keepdim=True).clamp(min=1)
        metrics: Mapping[str, Tensor] = {
            "regression/error": error_N.detach().abs()[:, None] * batch.mask_NS,
            "regression/fitted": fitted_N.detach()[:, None] * batch.mask_NS,
        }
        return Terms((error_N.square() / 2)[:, None] * spread_NS, metrics)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(SequenceSum):
            yield Advice("the loss of AdvantageRegression is over whole rollouts: set aggregation=SequenceSum()")
