"""An anchor of likelihood on right answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gimbal.objectives.base import AbstractObjective
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class RightLikelihood(AbstractObjective):
    """The likelihood of correct answers, so that a second reward does not lead the policy away from them (LightningRL,
    arXiv:2603.13319; VAPO, arXiv:2504.05118).

    loss = -coef logprob on rollouts whose return, or whose reward named ``right``, is above ``threshold``; its mean is over their
    decisions only, so it does not fade as they become rare.

    - no right rollout, or ``coef`` = 0: nothing.
    - all right and ``coef`` = 1: Likelihood.

    Published: ``coef`` 0.1.

    Confidence: partial; the term and its weight are from the papers; ours: which rollouts count as right.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS"})
    names_rewards: ClassVar[tuple[str, ...]] = ("right",)

    coef: float = 0.1
    right: str = ""
    threshold: float = 0.5

    def counted(self, batch: TrainBatch) -> Bool[Tensor, "N S"]:
        batch.column("reward_NS", self)
        outcome_N = batch.column(f"score/{self.right}", self) if self.right else batch.return_N
        return batch.mask_NS & (outcome_N > self.threshold)[:, None]

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        precise_NS = logprob_NS.to(torch.promote_types(logprob_NS.dtype, torch.float32))
        loss_NS = (-self.coef * precise_NS).where(self.counted(batch), 0)
        return Terms(loss_NS, {"nll/right": -precise_NS.detach().where(self.counted(batch), 0)})
