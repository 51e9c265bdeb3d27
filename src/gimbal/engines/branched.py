"""Rollouts that split off others: a group grows as a few trees, and no shared decision is drawn twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.engines.base import AbstractEngineAround, AbstractEngineSpec, Finished, Request
from gimbal.engines.native import Native, NativeEngine
from gimbal.policies.base import AbstractPolicy
from gimbal.records import Rollout


@dataclass(frozen=True, kw_only=True)
class Branched(AbstractEngineSpec):
    """The first ``trunks`` samples of a group are drawn from the prompt; each other one splits off a trunk where it was least certain.

    Sample i splits off sample i mod trunks once that has ended, before one of its ``places`` decisions of least log-probability, in
    turn. What a branch took over is not masked in: each decision counts in the rollout that drew it. A branch whose trunk is not in
    this engine any more is drawn from the prompt.

    - ``trunks`` of a group's size or more: ``engine`` as it is.

    After TreeRL's EPTree (arXiv:2506.11902), which also splits where the policy is uncertain and pays each step by the leaves below
    it. Confidence: partial; ours: one round of splits, the measure of uncertainty, both counts, and advantages of whole rollouts, so
    that the early decisions of a trunk are paid by its own score alone.
    """

    engine: Native = Native()
    trunks: int = 2
    places: int = 2

    def __post_init__(self) -> None:
        if self.trunks < 1 or self.places < 1:
            raise ValueError(
                f"Branched has {self.trunks} trunks and {self.places} places to split off at; let both be at least 1"
            )

    def start(self, policy: AbstractPolicy) -> BranchedEngine:
        return BranchedEngine(self, self.engine.start(policy))

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.run.held_out is not None and whole.run.held_out.engine is None:
            yield Refusal(
                "Branched splits rollouts where the policy was uncertain, so an evaluation drawn by it would not be of the policy: "
                "held_out.engine='Native()', or held_out=None"
            )


class BranchedEngine(AbstractEngineAround):
    """The live engine around another; a branch waits here until its trunk has ended."""

    inner: NativeEngine

    def __init__(self, spec: Branched, inner: NativeEngine) -> None:
        self.spec, self.inner = spec, inner
        self.waiting: dict[tuple[int, int], list[Request]] = {}  # by trunk, of all trunks under way
        self.split: dict[tuple[int, int], Rollout] = {}  # branches under way: the trunk, cut where they left it

    @property
    def in_flight(self) -> int:
        return self.inner.in_flight + sum(map(len, self.waiting.values()))

    def submit(self, request: Request) -> None:
        trunk = (request.group, request.sample % self.spec.trunks)
        if request.key != trunk and trunk in self.waiting:
            self.waiting[trunk].append(request)
            return
        if request.key == trunk:
            self.waiting[trunk] = []
        self.inner.submit(request)

    def step(self) -> list[Finished]:
        finished = [Finished.of(item.key, self._dressed(item.key, item.rollout)) for item in self.inner.step()]
        for item in finished:
            self.split.pop(item.key, None)
            for number, request in enumerate(self.waiting.pop(item.key, [])):
                self._branch(request, item.rollout, number)
        return finished

    def cancel(self, key: tuple[int, int]) -> Rollout | None:
        for requests in self.waiting.values():
            for request in requests:
                if request.key == key:
                    requests.remove(request)
                    return None
        rollout = self.inner.cancel(key)
        for request in self.waiting.pop(key, []):  # their trunk is gone
            self.inner.submit(request)
        dressed = None if rollout is None else self._dressed(key, rollout)
        self.split.pop(key, None)
        return dressed if dressed is not None and bool(dressed.mask_S.any()) else None

    def state_dict(self) -> dict[str, Any]:
        waiting = {key: list(requests) for key, requests in self.waiting.items()}
        return super().state_dict() | {"waiting": waiting, "split": dict(self.split)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.waiting = {key: list(requests) for key, requests in state["waiting"].items()}
        self.split = dict(state["split"])

    def _branch(self, request: Request, trunk: Rollout, number: int) -> None:
        """Queue the ``number``-th branch of this trunk."""
        places = trunk.behavior_S.argsort(stable=True)[: self.spec.places]
        at = int(places[number % len(places)])
        if at == 0:  # nothing is shared
            self.inner.submit(request)
            return
        self.split[request.key] = replace(trunk, fork=(trunk.sample, at))
        self.inner.resume(request, trunk, first=at)

    def _dressed(self, key: tuple[int, int], rollout: Rollout) -> Rollout:
        """With where it split off, its mask, and the entropies of what it took over."""
        if (trunk := self.split.get(key)) is None:
            return rollout
        assert trunk.fork is not None
        at, entropy_S = trunk.fork[1], rollout.entropy_S
        if entropy_S is not None and trunk.entropy_S is not None:
            entropy_S = torch.cat([trunk.entropy_S[:at], entropy_S[at:]])
        mask_S = torch.arange(rollout.length) >= at
        return replace(rollout, fork=trunk.fork, mask_S=mask_S, entropy_S=entropy_S)
