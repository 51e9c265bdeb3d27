"""An exponentially weighted average of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.learning.proximal.base import AbstractAnchor, Evaluate, frozen_copy, weight_bytes
from gimbal.policies.base import AbstractPolicy
from gimbal.records import TrainBatch

LIVE = "live_frac"  # metric: the share of decisions that get a gradient,
SIGNAL = "signal_frac"  # and of those that have an advantage: without one there is nothing to clip


@dataclass(frozen=True, kw_only=True)
class Ewma(AbstractAnchor):
    """proximal = log-probability under an exponential average of all weights so far (PPO-EWMA, arXiv:2110.00641).

    theta_prox = sum_k decay^(t-k) theta_k / sum_k decay^(t-k), after every update; one extra forward pass per batch. Its centre of
    mass lies decay / (1 - decay) updates back. With ``window`` = W > 0 the iterates are versions, averaged at the end of every learner
    step regardless of its number of updates, and the decay is W / (W + 2), so that the centre lies in the middle of W versions
    (arXiv:2605.12070). Where mask and clip leave a gradient to less than ``reset_below`` of the decisions with an advantage, the
    average restarts at the current weights.

    - ``decay`` = 0: the current weights, Recompute.
    - ``decay`` near 1: the plain mean of all iterates.
    - ``reset_below`` = 0: never reset, plain PPO-EWMA.

    Published: decay .889 (centre of mass 8); window the largest staleness, reset_below .9.

    Confidence: verified.
    """

    decay: float = 0.889
    window: int = 0
    reset_below: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"Ewma.decay is {self.decay}; it must be in [0, 1), where 0 is the current weights")
        if self.window < 0 or not 0 <= self.reset_below <= 1:
            raise ValueError(
                "Ewma.window counts versions (0 is off), and reset_below is a share in [0, 1] (0 is never)"
            )

    @property
    def rate(self) -> float:
        return self.window / (self.window + 2) if self.window else self.decay

    def __call__(self, batch: TrainBatch, evaluate: Evaluate) -> Float[Tensor, "N S"]:
        raise TypeError("Ewma keeps weights: call start(policy) and use what it returns")

    def start(self, policy: AbstractPolicy) -> LiveEwma:
        return LiveEwma(self, policy)


class LiveEwma(AbstractAnchor):
    """The average itself, in a copy of the policy."""

    def __init__(self, spec: Ewma, policy: AbstractPolicy) -> None:
        self.spec = spec
        self.policy = frozen_copy(policy)
        self.total = 1.0  # sum of the weights of all iterates so far
        self.live = self.signal = 0.0  # sums of the two shares, since the last iterate

    def __call__(self, batch: TrainBatch, evaluate: Evaluate) -> Float[Tensor, "N S"]:
        return evaluate(batch, self.policy)

    def observe(self, policy: AbstractPolicy, metrics: Mapping[str, float]) -> None:
        self.live, self.signal = self.live + metrics.get(LIVE, 0.0), self.signal + metrics.get(SIGNAL, 0.0)
        if not self.spec.window:
            self._average(policy)

    def publish(self, policy: AbstractPolicy, version: int) -> None:
        if self.spec.window:
            self._average(policy)

    @torch.no_grad()
    def _average(self, policy: AbstractPolicy) -> None:
        """One more iterate."""
        reset = self.live < self.spec.reset_below * self.signal
        self.live = self.signal = 0.0
        self.total = 1.0 if reset else 1.0 + self.spec.rate * self.total
        for average, present in zip(self.policy.parameters(), policy.parameters(), strict=True):
            average.lerp_(present.to(average.dtype), 1.0 / self.total) if self.total > 1 else average.copy_(present)

    def nbytes(self) -> int:
        return weight_bytes(self.policy)

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "weights": {name: x.clone() for name, x in self.policy.state_dict().items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.total = state["total"]
        self.policy.load_state_dict(state["weights"])
