"""Pairs of answers to one prompt, the better one against the worse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from gimbal.composition import Advice, Composition, Verdict
from gimbal.objectives.base import AbstractObjective
from gimbal.ops import SequenceSum
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class DirectPreference(AbstractObjective):
    """Makes the better of two answers likelier than the worse, relative to the reference (DPO, arXiv:2305.18290).

    Rows i and j of a group are a pair where i's return is above j's. With S = sum_t logprob and S_ref likewise,
    u_ij = beta ((S_i - S_ref_i) - (S_j - S_ref_j)),  loss_ij = -(1 - smoothing) log sigmoid(u_ij) - smoothing log sigmoid(-u_ij).
    Each of a pair's rows carries half its loss, spread evenly over the row's decisions and times rows / pairs, so SequenceSum makes
    it the mean over all pairs of the minibatch. It reads no advantages. beta (S - S_ref) is the reward the policy implies.

    - policy = reference: log 2 per pair, gradient -(1 - 2 smoothing) beta / 2 (grad S_i - grad S_j).
    - groups of two: the published loss on the preferred and the other answer.
    - equal returns, or a group of one: no pair, no loss.
    - ``smoothing`` = 0.5: labels have no effect, and the reference is the minimum.

    Published: ``beta`` 0.1, ``smoothing`` 0; pairs are fixed beforehand and people pick the winner; ours: the higher return wins.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference_NS", "reward_NS", "group_N"})
    whole_groups: ClassVar[bool] = True

    beta: float = 0.1
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        if self.beta <= 0 or not 0 <= self.smoothing <= 0.5:
            raise ValueError(
                f"DirectPreference takes beta above 0 and smoothing in [0, 0.5], not {self.beta} and {self.smoothing}; "
                "beta 0.1 and smoothing 0 are the published ones"
            )

    def survey(self, batch: TrainBatch) -> Mapping[str, Tensor]:
        there_N, pairs = batch.mask_NS.any(-1), self._preferred(batch).sum().clamp(min=1)
        facts = {"pair_scale": there_N.sum() / pairs, "pair_share": batch.mask_NS.sum() / pairs}
        return {name: value.float().expand(len(there_N)) for name, value in facts.items()}

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        batch = self.surveyed(logprob_NS, batch, "pair_scale")
        reference_NS, better_NN = batch.column("reference_NS", self), self._preferred(batch)
        precise_NS = logprob_NS.to(torch.promote_types(logprob_NS.dtype, torch.float32))
        implied_N = self.beta * (precise_NS - reference_NS).where(batch.mask_NS, 0).sum(-1)
        u_NN = implied_N[:, None] - implied_N
        loss_NN = -(1 - self.smoothing) * logsigmoid(u_NN) - self.smoothing * logsigmoid(-u_NN)
        row_N = _over_rows(loss_NN.where(better_NN, 0)) / 2 * batch.column("pair_scale", self)
        spread_NS = batch.mask_NS / batch.mask_NS.sum(-1, keepdim=True).clamp(min=1)
        # A share of pairs, though metrics are means over decisions. A tie counts half: before the first step all pairs are ties, and 0
        # would look like a policy that is always wrong. Two passes over the same row differ in the last digits.
        noise_N = 1e-6 * self.beta * precise_NS.abs().where(batch.mask_NS, 0).sum(-1)
        tied_NN = u_NN.abs() <= noise_N[:, None] + noise_N
        right_NN = torch.where(tied_NN, 0.5, (u_NN > 0).float())
        right_N = _over_rows(right_NN.where(better_NN, 0)) / 2 * batch.column("pair_share", self)
        metrics = {
            "pair/accuracy": right_N[:, None] * spread_NS,
            "pair/implied": implied_N.detach()[:, None] * batch.mask_NS,
        }
        return Terms(row_N[:, None] * spread_NS, metrics)

    def _preferred(self, batch: TrainBatch) -> Bool[Tensor, "N N"]:
        """Whether row n is of m's group and earned more; rows without decisions are in no pair."""
        return_N, group_N = batch.column("reward_NS", self).double().sum(-1), batch.column("group_N", self)
        there_N = batch.mask_NS.any(-1)
        together_NN = (group_N[:, None] == group_N) & there_N[:, None] & there_N
        return together_NN & (return_N[:, None] > return_N)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(SequenceSum):
            yield Advice("the loss of DirectPreference is over whole rollouts: set aggregation=SequenceSum()")


def _over_rows(x_NN: Float[Tensor, "N N"]) -> Float[Tensor, " N"]:
    """Sum over the pairs that a row is in, on either side."""
    return x_NN.sum(0) + x_NN.sum(1)
