"""A pull towards the reference above a threshold, stronger where the policy is certain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.composition import REFERENCE, AbstractRemembering, State
from gimbal.objectives.base import AbstractObjective
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class EntropyGatedKL(AbstractObjective, AbstractRemembering):
    """A KL penalty above a threshold, stronger at low entropy (SAFE, arXiv:2602.04651).

    loss = 2 strength max(s - threshold, 0) g (logprob - reference)^2 / 2, the factor without gradient: for s = KL the expected gradient
    of g strength max(KL - threshold, 0)^2. s = decay smoothed + (1 - decay) KL,  KL = mean of logprob - reference over the minibatch,
    g = max(least, scale / (H + 0.1)), H its mean entropy (of densities: at least 0).

    - ``threshold`` = inf, or ``strength`` = 0: nothing.
    - ``decay`` = 0, ``scale`` = 0, ``least`` = 1: no memory and no gate, the asymmetric penalty of the same authors.
    - logprob = reference: value 0 and gradient 0.

    ``smoothed`` is the initial value of the running average; PhasedPID moves ``threshold``. Their code adds
    the penalty as a number without gradient, so it has no effect on the weights; ours has the gradient, through the squared log-ratio
    (the gradient of the mean log-ratio itself is 0 in expectation). They update the average with every update, we with every step.

    Metrics: ``kl/k1``, the mean log-ratio; ``kl/rein``, the factor.

    Confidence: partial; penalty, gate and numbers are from their code; ours: the gradient.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference_NS", "current_NS", "entropy_NS"})

    strength: float = 0.1
    threshold: float = 0.3
    smoothed: float = 0.0
    decay: float = 0.9
    scale: float = 2.0
    least: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.decay <= 1:
            raise ValueError(f"EntropyGatedKL.decay is {self.decay}; it is the share kept of the average, 0 to 1")
        if min(self.strength, self.scale, self.least) < 0:
            raise ValueError(
                f"EntropyGatedKL has strength {self.strength}, scale {self.scale} and least {self.least}; below 0 it would push "
                "away from the reference: 0 or above"
            )

    def survey(self, batch: TrainBatch) -> Mapping[str, Tensor]:
        gap_NS = ops.k1(batch.column("current_NS", self), batch.column("reference_NS", self))
        average = self.decay * self.smoothed + (1 - self.decay) * ops.masked_mean(gap_NS, batch.mask_NS)
        entropy = ops.masked_mean(batch.column("entropy_NS", self).detach(), batch.mask_NS).clamp(min=0)
        gate = (self.scale / (entropy + 0.1)).clamp(min=self.least)
        rein = 2 * self.strength * (average - self.threshold).clamp(min=0) * gate
        return {"kl_rein": rein.expand(batch.shape[0])}

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        batch = self.surveyed(logprob_NS, batch, "kl_rein")
        reference_NS = batch.column("reference_NS", self)
        kept_NS = logprob_NS.where(batch.mask_NS, 0)
        rein_NS = batch.column("kl_rein", self)[:, None] * batch.mask_NS
        metrics = {"kl/k1": ops.k1(kept_NS.detach(), reference_NS), "kl/rein": rein_NS}
        return Terms(rein_NS * ops.k2(kept_NS, reference_NS), metrics)

    def init(self) -> State:
        return {"smoothed": self.smoothed}

    def update(self, state: State, metrics: Mapping[str, float]) -> State:
        return {"smoothed": self.decay * state["smoothed"] + (1 - self.decay) * metrics["kl/k1"]}

    def effects(self) -> frozenset[str]:
        return frozenset({REFERENCE})
