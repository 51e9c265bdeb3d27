"""Smaller steps where few samples carry the weight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gimbal.composition import SEQUENCE_WEIGHT, Composition, Refusal, Verdict
from gimbal.controllers.base import AbstractStepSize


@dataclass(frozen=True, kw_only=True)
class EffectiveSampleSize(AbstractStepSize):
    """Scales the step size by the effective sample size (VCPO, arXiv:2602.17616).

    factor = min(1, share / full) ** power, share = (sum w)^2 / (N sum w^2) of the minibatch, in (0, 1].

    - on-policy, w = 1: factor 1.
    - ``full`` near 0, or ``power`` = 0: factor 1 always, a constant learning rate.
    - one sample has all the weight: (1 / (N full)) ** power.

    Published: full 1; power .5 for Adam, 1 for plain gradient descent.

    Confidence: verified.
    """

    signal: str = "ess/sequence"
    full: float = 1.0
    power: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.full <= 1 or self.power < 0:
            raise ValueError(
                f"EffectiveSampleSize has full {self.full} and power {self.power}; full is a share in (0, 1], power 0 or above"
            )

    def __call__(self, metrics: Mapping[str, float]) -> float:
        if self.signal not in metrics:
            raise ValueError(
                f"EffectiveSampleSize reads {self.signal}, which no part reports: use objective=SequenceWeight(), or set signal= to "
                f"one of {', '.join(sorted(metrics)) or 'the metrics of the objective'}"
            )
        return min(1.0, max(0.0, metrics[self.signal]) / self.full) ** self.power

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if self.signal == "ess/sequence" and not whole.doing(SEQUENCE_WEIGHT):
            yield Refusal(
                "EffectiveSampleSize reads ess/sequence, which only SequenceWeight reports: use it as objective, or another signal"
            )
