"""Every turn is its own sample, with the reward of the whole rollout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.composition import Advice, Composition, Verdict
from gimbal.ops.levels import first_of_turn
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class TurnSamples(AbstractAdvantage):
    """Gives each turn the outcome of its rollout, with group statistics over turns (AgentFlow, arXiv:2510.05592).

    A_i = (R_i - mean R) / (std R + eps), over the group's rollouts, or with ``weighting`` "turn" over its turns, each with the reward
    of its rollout. "turn" gives long rollouts more weight: if those are the good ones, the mean rises and all advantages fall.

    - ``weighting`` = "trajectory", or one turn each: GroupNormalized.
    - equally many turns each: both weightings coincide (with ``ddof`` 0; with 1 the deviation divides by turns - 1).
    - all rewards of a group equal, or a group of one: A = 0.

    Published: the text has "trajectory" and the released code "turn". The paper calls it Flow-GRPO; it is unrelated to the
    Flow-GRPO for diffusion models.

    Confidence: verified; the order of means in the text is from memory.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "group_N"})

    weighting: Literal["trajectory", "turn"] = "turn"
    ddof: int = 1
    eps: float = 1e-6

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        return_N, group_N = batch.return_N, batch.column("group_N", self)
        if self.weighting == "trajectory":
            value_N = ops.group_normalised(return_N, group_N, ddof=self.ddof, eps=self.eps)
            return value_N[:, None] * batch.mask_NS
        first_NS = first_of_turn(batch.turns_NS, batch.mask_NS)
        return_K, group_K = (x[:, None].expand(batch.shape)[first_NS] for x in (return_N, group_N))
        value_NS = torch.zeros_like(batch.mask_NS, dtype=return_N.dtype)
        value_NS[first_NS] = ops.group_normalised(return_K, group_K, ddof=self.ddof, eps=self.eps)
        value_N = value_NS.sum(-1) / first_NS.sum(-1).clamp(min=1)
        return value_N[:, None] * batch.mask_NS


@dataclass(frozen=True, kw_only=True)
class TurnBalanced(AbstractAdvantage):
    """Gives every turn the same weight under ops.SequenceMean, whatever its length (AgentFlow, arXiv:2510.05592).

    A'_t = A_t L / (K l_t),  L the number of decisions in the rollout, l_t in the decision's turn and K the number of turns: a loss
    proportional to A is then the mean over the decisions of a turn, over the turns of a rollout, over rollouts. With ``weighting``
    "turn", K is the batch's mean number of turns per rollout, and rollouts with many turns weigh more, as if each turn were a row.

    - one turn each, or turns of equal length with "trajectory": A.

    Regularisers and masks that renormalise keep their own mean over decisions.

    Confidence: partial; the order of means is from memory; ours: the shaping.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS"})

    weighting: Literal["trajectory", "turn"] = "trajectory"

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        advantage_NS, mask_NS = batch.column("advantage_NS", self), batch.mask_NS
        long_NS = ops.pooled(mask_NS.to(advantage_NS.dtype), mask_NS, "turn", batch.turns_NS, "sum").clamp(min=1)
        turns_N = first_of_turn(batch.turns_NS, mask_NS).sum(-1).to(advantage_NS.dtype)
        if self.weighting == "turn":
            turns_N = turns_N.sum() / (turns_N > 0).sum().clamp(min=1) + torch.zeros_like(turns_N)
        share_N = mask_NS.sum(-1) / turns_N.clamp(min=1)
        return advantage_NS * (share_N[:, None] / long_NS)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(ops.SequenceMean):
            yield Advice("TurnBalanced assumes SequenceMean; another aggregation weights turns again")
