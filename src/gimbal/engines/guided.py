"""An engine with a guide in every group: some samples are demonstrations, the others the policy's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gimbal.composition import GUIDES, Advice, Composition, Verdict
from gimbal.dataflow.filters.step_repair import StepRepair
from gimbal.engines.base import AbstractEngineAround, AbstractEngineSpec, Finished, Request
from gimbal.engines.demonstrated import DemonstratedEngine
from gimbal.engines.native import Native
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.token import TokenPolicy
from gimbal.records import Rollout


@dataclass(frozen=True, kw_only=True)
class Guided(AbstractEngineSpec):
    """The first ``guides`` samples of a task are taken from its column ``completion``, all others are drawn by ``sampler``.

    Tasks without that column, such as those of an exam, are all drawn. filters.StepRepair makes something of the guides.
    """

    sampler: AbstractEngineSpec = Native()
    guides: int = 1

    def __post_init__(self) -> None:
        if self.guides < 0:
            raise ValueError(f"Guided.guides is {self.guides}; it counts samples of a group, 0 or above")

    def start(self, policy: AbstractPolicy) -> GuidedEngine:
        return GuidedEngine(self, policy)

    def effects(self) -> frozenset[str]:
        return frozenset({GUIDES})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if any(repair.guides != self.guides for repair in whole.all(StepRepair)):
            yield Advice("StepRepair.guides and Guided.guides differ")


class GuidedEngine(AbstractEngineAround):
    """Two engines behind one queue; weights and witnesses are the sampler's."""

    def __init__(self, spec: Guided, policy: AbstractPolicy) -> None:
        self.spec = spec
        assert isinstance(policy, TokenPolicy), "demonstrations are texts"
        self.inner, self.guide = spec.sampler.start(policy), DemonstratedEngine(policy)

    @property
    def in_flight(self) -> int:
        return self.inner.in_flight + self.guide.in_flight

    def submit(self, request: Request) -> None:
        guided = request.sample < self.spec.guides and "completion" in request.task.columns
        (self.guide if guided else self.inner).submit(request)

    def step(self) -> list[Finished]:
        return [*self.guide.step(), *self.inner.step()]

    def cancel(self, key: tuple[int, int]) -> Rollout | None:
        waiting = any(request.key == key for request in self.guide.queue)
        return (self.guide if waiting else self.inner).cancel(key)

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        super().load(version, state)
        self.guide.load(version, state)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"guide": self.guide.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.guide.load_state_dict(state["guide"])
