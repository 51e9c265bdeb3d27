"""The present weights and some of the past."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from gimbal.composition import Advice, Composition, Verdict
from gimbal.learning.proximal.base import AbstractAnchor, Evaluate, frozen_copy, weight_bytes
from gimbal.objectives.surrogates.gaussian_trust import GaussianTrust
from gimbal.policies.base import AbstractPolicy
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class Snapshots(AbstractAnchor):
    """proximal = log-probability under the current weights; the fact ``anchor/k`` is the same under the k-th past snapshot.

    A snapshot is taken after every ``every`` updates; ``count`` of them are kept, including the current one. Each past one costs a
    copy of the weights and a forward pass per batch. For objectives with several anchors (GTR, arXiv:2606.03382).

    - ``count`` = 1: Recompute.
    - before ``every`` updates: Recompute too, as there is no past yet.

    Confidence: abstract-only; ours: ``count``, ``every``, and that the newest anchor is the policy before the update.
    """

    count: int = 4
    every: int = 1

    def __post_init__(self) -> None:
        if self.count < 1 or self.every < 1:
            raise ValueError(
                f"Snapshots keeps {self.count}, one every {self.every} updates; both must be at least 1 (1 is Recompute)"
            )

    def __call__(self, batch: TrainBatch, evaluate: Evaluate) -> Float[Tensor, "N S"]:
        return evaluate(batch)

    def start(self, policy: AbstractPolicy) -> LiveSnapshots:
        return LiveSnapshots(self, policy)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if self.count > 1 and not whole.has(GaussianTrust):
            yield Advice("no part reads the past weights of Snapshots: use GaussianTrust, or set anchor.count=1")


class LiveSnapshots(AbstractAnchor):
    """The snapshots themselves, newest first; the newest holds the current weights where updates come in multiples of ``every``."""

    def __init__(self, spec: Snapshots, policy: AbstractPolicy) -> None:
        self.spec = spec
        self.ring = [frozen_copy(policy)]
        self.updates = 0

    def __call__(self, batch: TrainBatch, evaluate: Evaluate) -> Float[Tensor, "N S"]:
        return evaluate(batch)

    def facts(self, batch: TrainBatch, evaluate: Evaluate) -> Mapping[str, Tensor]:
        return {f"anchor/{k}": evaluate(batch, past) for k, past in enumerate(self.ring) if k > 0}

    def observe(self, policy: AbstractPolicy, metrics: Mapping[str, float]) -> None:
        self.updates += 1
        if self.updates % self.spec.every == 0:
            self.ring = [frozen_copy(policy), *self.ring][: self.spec.count]

    def nbytes(self) -> int:
        return sum(weight_bytes(policy) for policy in self.ring)

    def state_dict(self) -> dict[str, Any]:
        weights = [{name: x.clone() for name, x in policy.state_dict().items()} for policy in self.ring]
        return {"updates": self.updates, "weights": weights}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.updates = state["updates"]
        newest = self.ring[0]
        self.ring = [frozen_copy(newest) for _ in state["weights"]]
        for policy, weights in zip(self.ring, state["weights"], strict=True):
            policy.load_state_dict(weights)
