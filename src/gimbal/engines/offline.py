"""No sampler at all: for workflows that write their rows instead of drawing them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gimbal.engines.base import AbstractEngineSpec, AbstractEngineWithoutWeights, Finished, Request
from gimbal.policies.base import AbstractPolicy
from gimbal.records import Rollout


@dataclass(frozen=True, kw_only=True)
class Offline(AbstractEngineSpec):
    """Samples nothing and holds no weights, so training on recorded answers needs no memory for a sampler."""

    @property
    def can(self) -> frozenset[str]:
        return frozenset()

    def start(self, policy: AbstractPolicy) -> OfflineEngine:
        return OfflineEngine()


class OfflineEngine(AbstractEngineWithoutWeights):
    """Answers nothing."""

    @property
    def in_flight(self) -> int:
        return 0

    def submit(self, request: Request) -> None:
        raise ValueError(
            f"engine=Offline() samples nothing, so it cannot answer task {request.task.id}: use workflow=Demonstrated() with it, or "
            "engine=Native()"
        )

    def step(self) -> list[Finished]:
        return []

    def cancel(self, key: tuple[int, int]) -> Rollout | None:
        raise KeyError(f"no request {key} is in flight")

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        return None
