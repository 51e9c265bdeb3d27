"""Advantages from a teacher's log-probabilities instead of rewards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.composition import Composition, Refusal, Verdict
from gimbal.ops.discounted import discounted_sums
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class Distillation(AbstractAdvantage):
    """On-policy distillation: a teacher, the run's ``reference``, grades every decision that the policy samples (MiniLLM,
    arXiv:2306.08543; GKD, arXiv:2306.13649; as a policy gradient without rewards: Thinking Machines, 2025).

    A_t = sum_{k >= t} gamma^(k-t) (reference - proximal)_k over the counted decisions: minus the log-ratio to the teacher, clamped to
    +-20. On fresh data its mean is an estimate of minus KL(policy || teacher); for a sampler that is older or another engine, decisions
    need the weight exp(proximal - behavior): correction=TruncatedWeight().

    - ``gamma`` = 0: each decision by its own log-ratio; the expected gradient is that of the KL of each decision in its context.
    - ``gamma`` = 1: the expected gradient is that of the KL of whole answers, with more variance.
    - policy = teacher: 0 everywhere.
    - rewards do not enter. For both, GroupNormalized with reward_shaping=[KLReward()].

    ``metrics``: ``distillation/kl``, the mean log-ratio in nats per decision, with that weight where ``behavior_NS`` is there.

    Published: ``gamma`` 0, one update a batch, weights to the sampler that are not truncated. The exact form sums over the vocabulary
    and needs no weights: objective=ExactKL(coef=1) correction=none.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "reference_NS"})

    gamma: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"Distillation.gamma is {self.gamma}; it must be in [0, 1]")

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        return discounted_sums(-self._ratio_NS(batch), batch.mask_NS, self.gamma)

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        weight_NS = torch.ones_like(batch.column("proximal_NS", self))
        if batch.behavior_NS is not None:
            weight_NS = ops.ratio(batch.column("proximal_NS", self), batch.column("behavior_NS", self))
        total = ops.masked_sum(weight_NS, batch.mask_NS)
        apart = ops.masked_sum(weight_NS * self._ratio_NS(batch), batch.mask_NS)
        return {"distillation/kl": float(apart / total) if total else 0.0}

    def _ratio_NS(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        return ops.k1(batch.column("proximal_NS", self), batch.column("reference_NS", self))

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.run.learns.reference is None:
            yield Refusal(
                "Distillation learns from a teacher, and without one the reference is the policy's own start, which teaches nothing: "
                "reference=DIRECTORY names its model"
            )
