"""A pull towards the reference, only on samples whose reward is doubtful."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gimbal.composition import REFERENCE
from gimbal.objectives.base import AbstractObjective
from gimbal.objectives.regularisers.step_kl import StepKL
from gimbal.records import Terms, TrainBatch

FRACTION, WEIGHT, DOUBT = "gate/frac", "gate/weight", "gate/doubt"


@dataclass(frozen=True, kw_only=True)
class GatedStepKL(AbstractObjective):
    """StepKL on the ``share`` of samples that win by their own reward but not by others (GARDO, arXiv:2512.24138).

    U_i = w(reward_i) - mean over ``auxiliary`` of w(score_i),  w(y_i) = (1 / B) #{j: y_j < y_i} in the minibatch of B samples. The gate
    M is 1 for the ceil(share B) samples of the largest U, if U >= 0; loss = coef sum_i M_i KL_i / max(1, sum_i M_i), KL_i the mean
    over the recorded steps of sample i (assumed equally many for all).

    - ``share`` = 1: StepKL, whatever U is.
    - ``share`` = 0, or U < 0 everywhere: nothing.
    - an auxiliary reward that orders samples as the reward does: U = 0 everywhere.
    - without ``auxiliary``: the samples of the largest reward.

    ``auxiliary`` names rewards of the run with weight 0: they are compared, never optimised. Metrics: ``gate/frac``, the share of
    samples in the gate; ``gate/doubt``, the mean of U where it is not negative; ``kl/ref``, of all samples.

    Published: share from .02 to .2, moved by NewExtremes from .1; coef .04 to .07; two auxiliary rewards. The released code ranks from
    best to worst, so that its U has the other sign; this is the paper's.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = StepKL.needs | {"reward_NS"}
    names_rewards: ClassVar[tuple[str, ...]] = ("auxiliary",)

    coef: float = 0.04
    share: float = 0.1
    auxiliary: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"GatedStepKL.share is {self.share}; it is a share of the samples, from 0 to 1")

    def survey(self, batch: TrainBatch) -> Mapping[str, Tensor]:
        there_N = batch.mask_NS.any(-1)
        doubt_N = wins(batch.return_N, there_N)
        for name in self.auxiliary:
            doubt_N = doubt_N - wins(batch.column(f"score/{name}", self), there_N) / len(self.auxiliary)
        # Equal shares may differ by a rounding.
        doubted_N = there_N & (doubt_N >= -1e-6)
        allowed_N = there_N if self.share == 1 else doubted_N
        count = min(math.ceil(self.share * int(there_N.sum())), int(allowed_N.sum()))
        chosen = doubt_N.masked_fill(~allowed_N, -math.inf).argsort(descending=True, stable=True)[:count]
        gate_N = torch.zeros_like(doubt_N).index_fill(0, chosen, 1.0)
        rows = there_N.sum()
        return {
            FRACTION: gate_N,
            WEIGHT: gate_N * rows / max(count, 1),
            DOUBT: doubt_N.clamp(min=0) * doubted_N * rows / doubted_N.sum().clamp(min=1),
        }

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        batch = self.surveyed(logprob_NS, batch, WEIGHT)
        kl = StepKL(coef=self.coef)(logprob_NS, batch)
        told = {name: batch.facts[name][:, None].expand_as(kl.loss_NS) for name in (FRACTION, DOUBT)}
        return Terms(batch.facts[WEIGHT][:, None] * kl.loss_NS, {**kl.metrics, **told})

    def effects(self) -> frozenset[str]:
        return frozenset({REFERENCE})


def wins(score_N: Float[Tensor, " N"], there_N: Bool[Tensor, " N"]) -> Float[Tensor, " N"]:
    """The share of the samples that are there which each of them beats."""
    beaten_NN = (score_N[:, None] > score_N[None]) & there_N[None]
    return beaten_NN.sum(-1) / there_N.sum().clamp(min=1)
