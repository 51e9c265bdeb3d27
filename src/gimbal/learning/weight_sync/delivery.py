"""The way of the weights of one trained model to its sampler: published, delivered, proved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gimbal.engines.base import AbstractEngine
from gimbal.learning.base import AbstractTrained
from gimbal.learning.weight_sync.base import AbstractWeightSync
from gimbal.learning.weight_sync.proof import DeliveryProof
from gimbal.records import Rollout


class Delivery:
    """One model, its engine, its sync and its proof. A run has one of the policy, and one of each model of a role of its own.

    ``name`` ends the names of its metrics; "" is the policy.
    """

    def __init__(self, name: str, source: AbstractTrained, engine: AbstractEngine, sync: AbstractWeightSync) -> None:
        self.name, self.source, self.engine, self.sync = name, source, engine, sync
        self._proof: DeliveryProof | None = None

    @property
    def proof(self) -> DeliveryProof:
        """There once the run has begun: its canary is drawn by the weights that it begins with."""
        assert self._proof is not None, "a trainer begins before it proves anything"
        return self._proof

    @property
    def begun(self) -> bool:
        return self._proof is not None

    def deliver(self, version: int) -> None:
        self.sync.publish(version, self.source.weights())
        self.sync.deliver(self.engine)

    def begin(self, canary: Callable[[AbstractEngine], Sequence[Rollout]]) -> None:
        """With the weights that were just delivered; the canary is the first that they draw."""
        self._proof = DeliveryProof(self.source, canary(self.engine), self.sync.travels)

    def resume(self, state: Mapping[str, Any]) -> None:
        self._proof = DeliveryProof(self.source, state["canary"], self.sync.travels)
        self._proof.load_state_dict(state)

    def prove(self, version: int) -> dict[str, float]:
        return self._named(self.proof(self.engine, version))

    def metrics(self) -> dict[str, float]:
        of_engine = self.engine.metrics() if self.name else {}  # the policy's are read with what surrounds its engine
        return self._named({**of_engine, **self.sync.metrics()})

    def state_dict(self) -> dict[str, Any]:
        return {"proof": self.proof.state_dict(), "sync": self.sync.state_dict()}

    def _named(self, metrics: Mapping[str, float]) -> dict[str, float]:
        return {f"{name}/{self.name}" if self.name else name: value for name, value in metrics.items()}
