"""A virtual-clock engine: rollouts that have lengths instead of tokens, and take time instead of work.

It serves the same ``Pipeline`` that a real engine serves, so admission, step rule, filters and store are the real ones. Time passes
only inside ``step`` (until a group is complete) and ``pass_time`` (while the learner is busy). Lengths depend on (seed, group,
sample) alone: every schedule is given the same work.

A device holds one copy of the weights and decodes all its rollouts in lockstep. A decode step of n rollouts whose caches hold c
tokens takes ``step_s + n row_s + c context_s`` seconds; a prompt, a start and a load hold up all rollouts of their device.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

import torch
from jaxtyping import Int
from torch import Tensor

from gimbal.engines.base import AbstractEngine, Finished, Request
from gimbal.records import AbstractDecisions, Rollout
from gimbal.runtime.simulate.timing import AbstractLengths, Speeds, Waits

Loading = Literal["interrupt", "drain", "barrier"]
Spans = tuple[tuple[int, int], ...]  # (version, decisions drawn by it), oldest first
_ZERO, _TRUE = torch.zeros(()), torch.ones((), dtype=torch.bool)


@dataclass(frozen=True)
class Durations(AbstractDecisions):
    """Rollouts of which nothing is known but how many decisions each version drew."""

    rows: tuple[Spans, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), max((_length(row) for row in self.rows), default=0)

    @property
    def cost_N(self) -> Int[Tensor, " N"]:
        return torch.tensor([_length(row) for row in self.rows], dtype=torch.long)

    def select(self, rows: Int[Tensor, " M"]) -> Durations:
        return Durations(tuple(self.rows[row] for row in rows.tolist()))

    @classmethod
    def stack(cls, items: Sequence[AbstractDecisions]) -> Durations:
        return cls(tuple(row for item in items if isinstance(item, Durations) for row in item.rows))

    def to(self, device: torch.device) -> Durations:
        return self


def _length(spans: Spans) -> int:
    return sum(count for _, count in spans)


@dataclass
class Device:
    """One copy of the weights and the rollouts that it decodes, as they stood at ``at``."""

    number: int
    at: float = 0.0
    steps: int = 0  # decode steps so far
    # Heap: (step of its end, order, of its start).
    rows: list[tuple[int, int, int, Request]] = field(default_factory=list)
    context: int = 0  # tokens in the caches
    loads: list[tuple[int, int]] = field(default_factory=list)  # (step before which, version)
    due: int | None = None  # a version that it will load when it may
    prompt: int | None = None  # group whose prompt it filled last, by these weights
    stamp: int = 0  # of its newest event
    busy: float = 0.0
    row_seconds: float = 0.0
    loading: float = 0.0

    def seconds(self, speeds: Speeds, steps: int) -> float:
        """Of so many decode steps from here, if nothing starts or ends: the context grows by n a step."""
        n = len(self.rows)
        first = speeds.step_s + n * speeds.row_s + speeds.context_s * self.context
        return steps * first + speeds.context_s * n * steps * (steps - 1) / 2

    def steps_until(self, speeds: Speeds, time: float) -> int:
        """The least number of whole decode steps that reach this time; at most as many as end a rollout."""
        most, left = self.rows[0][0] - self.steps, time - self.at
        low, high = 0, most
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.seconds(speeds, middle) >= left - 1e-12 else (middle + 1, high)
        return low

    def spend(self, seconds: float) -> None:
        self.at += seconds
        self.busy += seconds
        self.row_seconds += seconds * len(self.rows)

    def spans(self, first: int, end: int) -> Spans:
        """Which versions drew the decode steps from ``first`` to ``end``."""
        at = bisect_right(self.loads, (first, math.inf)) - 1
        found = []
        while first < end:
            until = min(end, self.loads[at + 1][0]) if at + 1 < len(self.loads) else end
            if until > first:
                found.append((self.loads[at][1], until - first))
            first, at = until, at + 1
        return tuple(found)


class VirtualEngine(AbstractEngine):
    """``devices`` samplers of ``slots`` rollouts each on one clock, ``now``.

    Requests wait in one queue, in order; the device with the fewest rollouts takes the next, and those of its group with it.
    Groups are of ``generations`` rollouts after prompts of ``prompt`` tokens. ``loading``: "interrupt" loads new weights at once,
    in the middle of rollouts; "drain": each device first finishes those under way, and starts none; "barrier": all devices
    finish all that was dispatched before, and load together. ``recompute``: caches are rebuilt when weights change.
    """

    def __init__(
        self,
        speeds: Speeds,
        lengths: AbstractLengths,
        waits: Waits,
        *,
        devices: int,
        slots: int,
        generations: int,
        prompt: int,
        loading: Loading,
        recompute: bool,
    ) -> None:
        self.speeds, self.lengths, self.generations, self.prompt = speeds, lengths, generations, prompt
        self.waits, self.slots, self.loading, self.recompute = waits, slots, loading, recompute
        self.devices = [Device(number) for number in range(devices)]
        self.now = 0.0
        self.work = Counter[str]()  # decode steps, rollout-steps, context, prompt tokens, starts, loads
        self._version = -1
        self._order = 0
        self._queue: deque[tuple[Request, int, int]] = deque()  # with its length, and the version at its dispatch
        self._open = [(0, number) for number in range(devices)]  # heap of (rollouts, device), checked when it is used
        self._events: list[tuple[float, int, int]] = []  # heap of (time, device, stamp): a rollout ends there
        self._ended: list[tuple[float, int, Finished]] = []  # heap: score known at this time
        self._ready: list[Finished] = []
        self._complete = False  # a group is whole since the last step
        self._lengths: dict[int, list[int]] = {}
        self._left = Counter[int]()  # rollouts of each group that are still out
        self._in_flight = 0
        self._versions: dict[int, Tensor] = {}

    @property
    def version(self) -> int:
        return self._version

    @property
    def tolerance(self) -> float:
        return 0.0

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def submit(self, request: Request) -> None:
        if request.group not in self._lengths:
            self._lengths[request.group] = self.lengths.draw(request.seed, request.group, self.generations)
        length = self._lengths[request.group][request.sample]
        self._queue.append((request, min(length, request.sampling.max_length), self._version))
        self._left[request.group] += 1
        self._in_flight += 1

    def step(self) -> list[Finished]:
        """Let time pass until a group is complete; all that ended since the last step comes out."""
        self._fill()
        while not self._complete and self._peek() < math.inf:
            self._next()
        return self.arrived()

    def arrived(self) -> list[Finished]:
        """All that ended since it was last asked."""
        found, self._ready, self._complete = self._ready, [], False
        self._in_flight -= len(found)
        return found

    def due(self) -> float:
        """When a rollout ends next, or its score arrives; infinity if none is under way."""
        self._fill()
        return self._peek()

    def pass_time(self, seconds: float) -> None:
        """The samplers continue while the learner does something else."""
        until = self.now + seconds
        self._fill()
        while self._peek() <= until:
            self._next()
        self.now = until

    def freeze(self, seconds: float) -> None:
        """The samplers stand still: the same devices do something else."""
        self.now += seconds
        for device in self.devices:
            device.at += seconds
            self._schedule(device)

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        first, self._version = self._version < 0, version
        for device in self.devices:
            device.due = version
            if first:
                device.due, device.loads = None, [(0, version)]
            elif self.loading == "interrupt":
                self._align(device)
                self._load(device)
        if not first:
            self._load_drained(self.devices)
        self._fill()

    def usage(self) -> dict[str, float]:
        """Device seconds up to now: busy (decoding, filling prompts), loading; and rollouts times seconds of decoding."""
        total: dict[str, float] = {"busy": 0.0, "loading": 0.0, "rows": 0.0}
        for device in self.devices:
            lag = self.now - device.at  # negative: it is in the middle of something that ends later
            total["busy"] += device.busy + (lag if device.rows else 0.0)
            total["rows"] += device.row_seconds + (lag * len(device.rows) if device.rows else 0.0)
            total["loading"] += device.loading + (0.0 if device.rows else min(0.0, lag))
        return total

    def cancel(self, key: tuple[int, int]) -> Rollout | None:
        for entry in self._queue:
            if entry[0].key == key:
                self._queue.remove(entry)
                return self._forget(key, None)
        for device in self.devices:
            for row in device.rows:
                if row[3].key == key:
                    self._align(device)
                    device.rows.remove(row)
                    heapq.heapify(device.rows)
                    device.context -= self.prompt + device.steps - row[2]
                    rollout = self._rollout(device, row, "cancelled") if device.steps > row[2] else None
                    self._settle(device)
                    return self._forget(key, rollout)
        for ended in self._ended:
            if ended[2].key == key:
                self._ended.remove(ended)
                heapq.heapify(self._ended)
                return self._forget(key, ended[2].rollout)
        for finished in self._ready:
            if finished.key == key:
                self._ready.remove(finished)
                self._in_flight -= 1
                return finished.rollout
        raise ValueError(f"no request {key} is in flight")

    def score(self, rollout: Rollout) -> NoReturn:
        raise ValueError("a simulation has no log-probabilities")

    def state_dict(self) -> NoReturn:
        raise ValueError("a simulation is not saved; it takes seconds to repeat")

    def load_state_dict(self, state: Mapping[str, Any]) -> NoReturn:
        raise ValueError("a simulation is not resumed; it takes seconds to repeat")

    def _forget(self, key: tuple[int, int], rollout: Rollout | None) -> Rollout | None:
        self._in_flight -= 1
        self._left[key[0]] -= 1
        return rollout

    def _peek(self) -> float:
        """When something happens next."""
        while self._events and self._events[0][2] != self.devices[self._events[0][1]].stamp:
            heapq.heappop(self._events)
        event = self._events[0][0] if self._events else math.inf
        return self._ended[0][0] if self._ended and self._ended[0][0] <= event else event

    def _next(self) -> None:
        time = self._peek()
        self.now = max(self.now, time)
        if self._ended and self._ended[0][0] <= time:
            finished = heapq.heappop(self._ended)[2]
            self._ready.append(finished)
            self._left[finished.key[0]] -= 1
            if not self._left[finished.key[0]]:
                del self._left[finished.key[0]], self._lengths[finished.key[0]]
                self._complete = True
            return
        device = self.devices[heapq.heappop(self._events)[1]]
        self._decode(device, device.rows[0][0] - device.steps)
        while device.rows and device.rows[0][0] == device.steps:
            row = heapq.heappop(device.rows)
            device.context -= self.prompt + row[0] - row[2]
            finished = Finished.of(row[3].key, self._rollout(device, row, "stop"))
            wait = self.waits.draw(row[3].seed, *finished.key)
            heapq.heappush(self._ended, (self.now + wait, row[1], finished))
        self._settle(device)
        self._fill()

    def _settle(self, device: Device) -> None:
        """After rollouts have left it."""
        if device.due is not None and not device.rows:
            self._load_drained([device])
        self._schedule(device)

    def _load_drained(self, devices: Sequence[Device]) -> None:
        """Those of them that wait for weights and have nothing under way load; at a barrier, once all is done."""
        if self.loading == "barrier":
            if any(device.rows for device in self.devices) or self._behind:
                return
            devices = self.devices
        for device in devices:
            if device.due is not None and not device.rows:
                device.at = max(device.at, self.now)
                self._load(device)

    def _load(self, device: Device) -> None:
        assert device.due is not None
        device.loads.append((device.steps, device.due))
        device.due = device.prompt = None
        device.at += self.speeds.load_s
        device.loading += self.speeds.load_s
        self.work["loads"] += 1
        if self.recompute and device.rows:
            device.spend(self.speeds.prefill_token_s * device.context)
            self.work["prompt"] += device.context
        self._schedule(device)

    def _fill(self) -> None:
        """Start what waits, as far as there is room."""
        while self._queue and self._open:
            live, number = heapq.heappop(self._open)
            device = self.devices[number]
            may = device.due is None or (self.loading == "barrier" and self._behind)
            if may and live == len(device.rows) and live < self.slots:
                self._start(device)

    @property
    def _behind(self) -> bool:
        """Whether what waits first was dispatched when the weights at hand were the newest, and so may start with them."""
        loads = self.devices[0].loads
        return bool(self._queue and loads) and self._queue[0][2] <= loads[-1][1]

    def _start(self, device: Device) -> None:
        """The first group that waits, as far as its rollouts have room."""
        self._align(device)
        group, count = self._queue[0][0].group, 0
        while self._queue and self._queue[0][0].group == group and len(device.rows) < self.slots:
            request, length, _ = self._queue.popleft()
            heapq.heappush(device.rows, (device.steps + length, self._order, device.steps, request))
            self._order += 1
            count += 1
        filled = 0 if device.prompt == group else self.prompt
        device.prompt = group
        device.context += count * self.prompt
        device.spend(count * self.speeds.start_s + filled * self.speeds.prefill_token_s)
        self.work.update(starts=count, prompt=filled)
        self._schedule(device)

    def _align(self, device: Device) -> None:
        """Bring the device to its first moment between two decode steps that is not before now."""
        if not device.rows:
            device.at = max(device.at, self.now)
        elif device.at < self.now:
            self._decode(device, device.steps_until(self.speeds, self.now))

    def _decode(self, device: Device, steps: int) -> None:
        n = len(device.rows)
        self.work.update(steps=steps, rows=n * steps, context=device.context * steps + n * steps * (steps - 1) // 2)
        device.spend(device.seconds(self.speeds, steps))
        device.steps += steps
        device.context += n * steps

    def _schedule(self, device: Device) -> None:
        """When its next rollout ends, and that it has room."""
        device.stamp += 1
        if device.rows:
            ends = device.at + device.seconds(self.speeds, device.rows[0][0] - device.steps)
            heapq.heappush(self._events, (ends, device.number, device.stamp))
        if (device.due is None or self.loading == "barrier") and len(device.rows) < self.slots:
            heapq.heappush(self._open, (len(device.rows), device.number))

    def _rollout(self, device: Device, row: tuple[int, int, int, Request], stop: str) -> Rollout:
        """Its columns are one value seen S times: they take no memory. ``version_S`` is the oldest, which bounds speak of."""
        spans, request = device.spans(row[2], device.steps), row[3]
        size = device.steps - row[2]
        zero_S = _ZERO.expand(size)
        if spans[0][0] not in self._versions:
            self._versions[spans[0][0]] = torch.tensor(spans[0][0])
        return Rollout(
            task=request.task,
            sample=request.sample,
            decisions=Durations((spans,)),
            behavior_S=zero_S,
            version_S=self._versions[spans[0][0]].expand(size),
            mask_S=_TRUE.expand(size),
            reward_S=zero_S,
            stop=stop,
            sampling=request.sampling,
        )
