"""A judge in two stages: criteria from the question alone, then judgements by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.composition import Composition, Refusal, Verdict
from gimbal.engines.base import AbstractEngineAround, AbstractEngineSpec, Finished, Request
from gimbal.engines.native import Native
from gimbal.policies.base import AbstractPolicy
from gimbal.records import Rollout
from gimbal.rewards.asking import fill
from gimbal.rewards.recorded import chosen

Key = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class CriteriaFirst(AbstractEngineSpec):
    """The first ``criteria`` samples of a task answer its prompt; each further one judges a response by one of them (CE-RM,
    arXiv:2601.20327).

    A judgement's prompt is ``template`` with {prompt}, {criteria} and {response} in their places, the response being an entry of the
    task's column ``column``: the better one first, then the worse. Sample criteria + j takes criteria number j modulo ``criteria``
    and the sides in turn, so that criteria (1 + 2 E) samples have E judgements of each side by each. Both stages are drawn by
    ``sampler``, recorded, and trained; a judgement's own ``task`` has the columns ``criterion`` and ``side``.

    - no more than ``criteria`` samples, tasks without the column, or what is in no group (canaries): the tasks as they are.
    - ``criteria`` = 1: a judge with one list of criteria for all.
    """

    sampler: AbstractEngineSpec = Native()
    criteria: int = 4
    template: str = "{prompt}{criteria}\n{response}\n"
    column: str = "completion"

    def __post_init__(self) -> None:
        if self.criteria < 1:
            raise ValueError(f"CriteriaFirst.criteria is {self.criteria}; at least one list of criteria is needed")

    def start(self, policy: AbstractPolicy) -> CriteriaFirstEngine:
        return CriteriaFirstEngine(self, policy)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(GroupNormalized):
            yield Refusal(
                "GroupNormalized would compare criteria with judgements, which CriteriaFirst puts into one group: use Stratified"
            )


class CriteriaFirstEngine(AbstractEngineAround):
    """Judgements wait for the criteria they go by; weights and witnesses are the sampler's."""

    def __init__(self, spec: CriteriaFirst, policy: AbstractPolicy) -> None:
        self.spec, self.inner = spec, spec.sampler.start(policy)
        self.waiting: dict[Key, list[Request]] = {}  # judgements, by the criteria in flight that they go by

    @property
    def in_flight(self) -> int:
        return self.inner.in_flight + sum(map(len, self.waiting.values()))

    def submit(self, request: Request) -> None:
        place = request.sample - self.spec.criteria
        if place < 0 or request.group < 0 or self.spec.column not in request.task.columns:
            self.waiting[request.key] = []
            self.inner.submit(request)
            return
        first = (request.group, place % self.spec.criteria)
        if first not in self.waiting:
            raise ValueError(f"sample {request.sample} judges by sample {first[1]}, which is to be submitted before it")
        self.waiting[first].append(request)

    def step(self) -> list[Finished]:
        finished = self.inner.step()
        for one in finished:
            self._release(one.key, one.rollout)
        return finished

    def cancel(self, key: Key) -> Rollout | None:
        for requests in self.waiting.values():
            for request in requests:
                if request.key == key:
                    requests.remove(request)
                    return None
        rollout = self.inner.cancel(key)
        self._release(key, rollout)
        return rollout

    def _release(self, key: Key, criteria: Rollout | None) -> None:
        """Send off the judgements that waited for these criteria."""
        for request in self.waiting.pop(key, []):
            number, side = (request.sample - self.spec.criteria) % self.spec.criteria, self._side(request.sample)
            task, text = request.task, "" if criteria is None else criteria.text
            response = str(chosen(task, self.spec.column, side))
            prompt = fill(self.spec.template, task, {"criteria": text, "response": response})
            columns = {name: value for name, value in task.columns.items() if name != "messages"}
            columns |= {"criterion": number, "side": ("better", "worse")[side]}
            self.inner.submit(replace(request, task=replace(task, prompt=prompt, columns=columns)))

    def _side(self, sample: int) -> int:
        return (sample - self.spec.criteria) // self.spec.criteria % 2

    def state_dict(self) -> dict[str, Any]:
        waiting = [(key, list(requests)) for key, requests in self.waiting.items()]
        return super().state_dict() | {"waiting": waiting}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.waiting = {tuple(key): list(requests) for key, requests in state["waiting"]}
