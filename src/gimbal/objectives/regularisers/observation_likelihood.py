"""Prediction of the environment's output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gimbal.composition import OBSERVES, Advice, Composition, Verdict
from gimbal.objectives.base import AbstractObjective
from gimbal.records import Part, Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class ObservationLikelihood(AbstractObjective):
    """Trains the policy to predict the observations of its own rollouts, failed ones included (ECHO, arXiv:2605.24517).

    loss_t = -coef logprob_t on observations (Part.OBSERVATION, which the policy did not sample), without advantage or ratio. The
    first ``skip`` decisions of each observation, an uninformative prefix, have no loss but stay in its mean. The rollout's forward pass
    already gives the logits. With TokenMean the mean is over all observed tokens of the minibatch.

    - no observations, or ``coef`` = 0: nothing.
    - as the objective itself, with ``coef`` 1: Likelihood of observations, which learns without any reward.

    Published: ``coef`` 0.05, useful from 0.01; 0.1 begins to hurt, and 0.2 drew the policy to easily predicted observations.
    Constant prefixes are trimmed; ours: by length.

    Confidence: verified.
    """

    coef: float = 0.05
    skip: int = 0

    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        if self.coef < 0 or self.skip < 0:
            raise ValueError(
                f"ObservationLikelihood takes coef and skip of 0 or above, not {self.coef} and {self.skip}"
            )

    def counted(self, batch: TrainBatch) -> Bool[Tensor, "N S"]:
        return (batch.parts_NS == Part.OBSERVATION) & ~batch.mask_NS

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        observed_NS = self.counted(batch)
        precise_NS = logprob_NS.to(torch.promote_types(logprob_NS.dtype, torch.float32)).where(observed_NS, 0)
        before_NS = torch.zeros_like(observed_NS)
        before_NS[:, self.skip :] = True
        for shift in range(1, min(self.skip, observed_NS.shape[1] - 1) + 1):
            before_NS[:, shift:] &= observed_NS[:, :-shift]
        foreseen_NS = precise_NS.where(before_NS, 0)
        return Terms(-self.coef * foreseen_NS, {"nll/observation": -precise_NS.detach()})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.doing(OBSERVES):
            yield Advice(
                "ObservationLikelihood learns from observations, but this run has none: set workflow=Dialogue()"
            )
