"""Many engines behind one, and many scorers behind one: the pipeline's view of a fleet.

An engine's member holds a real engine and a copy of the policy, and is kept in ``advance`` calls of bounded time, so it generates on
while the learner trains. New weights go to every member as one more call, with no barrier: as a member's calls are executed in order,
what is sent to it after version v was is drawn by version v or a newer one. The ledger checks that of every rollout.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from gimbal.engines.base import Finished, Request, Unserved, Witness
from gimbal.engines.precision import Form
from gimbal.engines.receipts import Receipt
from gimbal.learning.weight_sync.base import AbstractDistantEngine, Since
from gimbal.learning.weight_sync.delta import Stamp
from gimbal.learning.weight_sync.receipts import NotDelivered
from gimbal.records import Drop, Group, Rollout
from gimbal.runtime.base import AbstractScorer, Scored
from gimbal.runtime.fleet import TICK, AbstractBackend, AbstractOwner, Fleet
from gimbal.runtime.ledger import Key, Ledger
from gimbal.runtime.members import packed
from gimbal.runtime.schedule import Schedule

ADVANCE_SECONDS = 0.1  # of generation, then the worker looks for other calls
GRACE_SECONDS = 60.0  # to wait for slow workers; then those that are up begin
AHEAD = 2  # calls outstanding per worker, so that it need not wait for a slow learner
TRIES = 3  # how many members one request or group may kill

# Packets already in the store, by base: members share them.
Stored = dict[Stamp | None, Any]


class PoolEngine(AbstractDistantEngine, AbstractOwner):
    """Requests go to the least loaded member; a lost member's requests go to others, sampled again with the same random stream."""

    def __init__(
        self,
        backend: AbstractBackend,
        schedule: Schedule,
        *,
        workers: int,
        patience: float,
        note: Callable[[str], None],
        together: bool = False,
    ) -> None:
        self.backend, self.schedule, self.ledger = backend, schedule, Ledger(together=together)
        self.fleet = Fleet("worker", backend, self, patience=patience, note=note)
        self.entered: list[Request] = []  # submitted since the last step, to start together
        self.inbox: list[Finished] = []
        self.outbox: dict[int, list[tuple[int, Request]]] = defaultdict(list)  # for the member's next advance
        self.cancelled: dict[int, list[Key]] = defaultdict(list)  # likewise
        self.words: list[Witness] = []
        self.receipts: list[Receipt] = []
        self.loaded: dict[int, int] = {}  # the newest version that a member has confirmed
        self.hangs: Counter[str] = Counter()  # members lost, by the call that did not return
        # Seconds of work of all members, and the start of that count.
        self._busy, self._measured = 0.0, time.monotonic()
        self._sent = -1
        self._bring: Callable[[int, Stored], None] | None = None  # sends a member the version sent last
        self._stamps: dict[int, Stamp] = {}  # where packets have led a member, once it has done its calls
        self._bytes = 0  # of weights
        self._canary: tuple[Sequence[Rollout], Any] | None = None
        self._tolerance: float | None = None
        self._form: Form | None = None  # of every member's copy
        self.fleet.start(workers)
        # Requests handed out before all are up would all go to the first, and stay with it.
        grace = time.monotonic() + GRACE_SECONDS
        self._wait(lambda: len(self.ledger.load) >= (workers if time.monotonic() < grace else 1))

    @property
    def version(self) -> int:
        return self._sent

    @property
    def tolerance(self) -> float:
        assert self._tolerance is not None
        return self._tolerance

    @property
    def form(self) -> Form | None:
        return self._form

    @property
    def in_flight(self) -> int:
        with self.fleet.changed:
            return self.ledger.open + len(self.entered) + len(self.inbox)

    @property
    def workers(self) -> list[int]:
        """Members that are up."""
        with self.fleet.changed:
            return sorted(self.ledger.load)

    def add(self) -> int:
        """Add a worker, which joins as soon as it is up."""
        return self.fleet.add()

    def remove(self, worker: int) -> None:
        """Remove a worker; its requests go to the others."""
        self.fleet.remove(worker)

    def submit(self, request: Request) -> None:
        self.entered.append(request)

    def step(self) -> list[Finished]:
        """Finished rollouts, in order of arrival; waits a moment if there are none."""
        with self.fleet.changed:
            if self.entered:
                for request in self.entered:
                    self.ledger.enter(request)
                self.entered = []
                self._feed()
            if not self.inbox and self.fleet.failure is None:
                self.fleet.changed.wait(TICK)
            self.fleet.check()
            finished, self.inbox = self.inbox, []
            if finished:
                # What was taken, and when nothing was: in a replay the pipeline must be answered at the same questions.
                self.schedule.pipeline("t", [item.key for item in finished])
            else:
                self.schedule.nothing()
        return finished

    def cancel(self, key: Key) -> Rollout | Drop | None:
        """What a worker has drawn of it so far is not fetched."""
        with self.fleet.changed:
            self.schedule.pipeline("c", key)
            # It is in one of three places: not handed out yet, finished but not returned, or with a worker.
            self.entered = [request for request in self.entered if request.key != key]
            for item in self.inbox:
                if item.key == key:
                    self.inbox.remove(item)
                    return item.cancelled
            if key in self.ledger.held or key in self.ledger.waiting:
                worker = self.ledger.cancel(key)
                if worker is not None:
                    self.outbox[worker] = [item for item in self.outbox[worker] if item[1].key != key]
                    self.cancelled[worker].append(key)
                    self._feed()
        return None

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        plain = packed(state)
        weights, size = self.backend.put(plain), sum(data.nbytes for data, _, _ in plain.values())

        def bring(worker: int, stored: Stored) -> None:
            self._bytes += size
            self.fleet.call(worker, "load", version, weights)

        self._bring_all(version, bring)

    def load_packets(self, version: int, since: Since) -> None:
        """A member gets one call per version, so it lacks one delta, or everything if it just joined."""

        def bring(worker: int, stored: Stored) -> None:
            packets = since(self._stamps.get(worker))
            for packet in packets:
                if packet.base not in stored:
                    stored[packet.base] = self.backend.put(packet)
                self._bytes += packet.nbytes
                self._stamps[worker] = packet.stamp
            self.fleet.call(worker, "load_packets", version, *(stored[packet.base] for packet in packets))

        self._bring_all(version, bring)

    def _bring_all(self, version: int, bring: Callable[[int, Stored], None]) -> None:
        stored: Stored = {}
        with self.fleet.changed:
            self._sent, self._bring = version, bring
            self.schedule.pipeline("v", version)
            for worker in self.ledger.load:
                self._load(worker, stored)

    def score(self, rollout: Rollout) -> Float[Tensor, " S"]:
        # Any copy will do: the proof compares all of them with the trainer.
        words = self.witness(self._sent, [rollout])
        return words[-1].logprob_D

    def witness(self, version: int, canary: Sequence[Rollout]) -> list[Witness]:
        """What was heard since the last call. Workers with nothing to draw answer before it returns; busy ones when they can."""
        with self.fleet.changed:
            if self._canary is None or self._canary[0] is not canary:
                self._canary = (canary, self.backend.put(list(canary)))
                for worker in self.ledger.load:
                    self.fleet.call(worker, "watch", self._canary[1])
        self._wait(self._settled)
        with self.fleet.changed:
            words, self.words = self.words, []
        return words

    def heard(self, *, wait: bool) -> list[Receipt]:
        """NotDelivered if a worker has nothing under way and was not sent the newest version."""
        if wait:
            self._wait(self._settled)
        with self.fleet.changed:
            for worker in self.ledger.load:
                loading = any(self.fleet.queued(worker, method) for method in ("load", "load_packets"))
                # A worker that is loading may be behind. One that is idle and behind would draw with old weights for ever, recorded as
                # new ones.
                if self._bring is not None and not loading and self.loaded.get(worker) != self._sent:
                    raise NotDelivered(
                        f"worker {worker} has loaded version {self.loaded.get(worker)} of the weights and was not sent {self._sent}"
                    )
            receipts, self.receipts = self.receipts, []
        return receipts

    def close(self) -> None:
        self.fleet.close()
        self._bring = self._canary = None  # what is in the store goes with it

    def metrics(self) -> dict[str, float]:
        """Since the last call; ``repeated`` rollouts since the beginning. A call under way counts when it has returned."""
        with self.fleet.changed:
            workers, now = len(self.ledger.load), time.monotonic()
            busy, self._busy = self._busy, 0.0
            sent, self._bytes = self._bytes, 0
            seconds, self._measured = now - self._measured, now
            idle = max(0.0, 1 - busy / (seconds * workers)) if workers else 1.0
            return {
                "pool/workers": float(workers),
                "pool/idle_frac": idle,
                "pool/repeated": float(self.ledger.repeated),
                "pool/weight_bytes": float(sent),
            }

    def state_dict(self) -> dict[str, Any]:
        """Requests, and finished rollouts that are not returned yet; unfinished rollouts are sampled again."""
        with self.fleet.changed:
            # Unfinished rows are in other processes, which a resumed run does not have; the same stream samples them again.
            requests, finished = [*self.ledger.requests(), *self.entered], list(self.inbox)
            return {"requests": requests, "finished": finished, "schedule": self.schedule.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        with self.fleet.changed:
            self.entered, self.inbox = list(state["requests"]), list(state["finished"])
            self.schedule.resume(state["schedule"])

    def joined(self, member: int, answer: Any) -> None:
        self._tolerance, self._form = answer
        self.ledger.join(member)
        self.schedule.member("j", member)
        # A replacement gets no packet that was sent before, since the packet may be at fault.
        self._load(member, {})
        if self._canary is not None:
            self.fleet.call(member, "watch", self._canary[1])
        self._feed()

    def answered(self, member: int, method: str, answer: Any) -> None:
        if method != "advance":
            who = f"worker {member}"
            if answer.receipt is not None:
                self.receipts.append(replace(answer.receipt, who=who))
            if answer.logprob_D is not None:
                word = Witness(who=who, due=answer.due, version=answer.version, logprob_D=answer.logprob_D)
                self.words.append(word)
            if method != "watch":
                self.loaded[member] = answer.due
            return
        finished, busy, steps = answer
        self.schedule.member("r", member, steps)
        for number, item in finished:
            oldest = None if isinstance(item.outcome, Drop) else item.outcome.oldest
            if self.ledger.finish(member, number, item.key, oldest):
                # Only what the ledger still expects of this member: a cancelled or repeated rollout would be trained on twice.
                self.inbox.append(item)
        self._busy += busy
        self._feed()

    def lost(self, member: int, hung: str) -> None:
        # First its requests return to the queue, or they would wait for a worker that is gone.
        self.ledger.leave(member)
        self._stamps.pop(member, None)
        self.loaded.pop(member, None)
        self.schedule.member("d", member)
        self.outbox.pop(member, None)
        self.cancelled.pop(member, None)
        if hung:
            call = hung.rpartition(", ")[0] or hung  # without the seconds
            self.hangs[call] += 1
            if self.hangs[call] >= TRIES:
                self.fleet.failure = self.fleet.failure or Unserved(
                    f"{TRIES} workers did not return from {call}; give it its own time limit, or fix it, then --resume"
                )
        self._feed()

    def _feed(self) -> None:
        """Assign waiting requests, and keep every member with work in ``advance`` calls."""
        for worker, tickets in self.ledger.hand_out(self._sent).items():
            self.outbox[worker] += [(ticket.number, ticket.request) for ticket in tickets]
        for worker, load in self.ledger.load.items():
            while (load or self.cancelled[worker]) and self.fleet.queued(worker, "advance") < AHEAD:
                new, gone = self.outbox.pop(worker, []), self.cancelled.pop(worker, [])
                self.schedule.member("a", worker, [request.key for _, request in new], gone)
                self.fleet.call(worker, "advance", new, gone, ADVANCE_SECONDS)

    def _load(self, worker: int, stored: Stored) -> None:
        if self._bring is not None:
            self.schedule.member("l", worker, self._sent)
            self._bring(worker, stored)

    def _settled(self) -> bool:
        return not any(self._idle_and_silent(worker) for worker in self.ledger.load) and bool(self.ledger.load)

    def _idle_and_silent(self, worker: int) -> bool:
        return not self.ledger.load[worker] and bool(self.fleet.members[worker].calls)

    def _wait(self, until: Callable[[], bool]) -> None:
        with self.fleet.changed:
            while not until():
                self.fleet.check()
                self.fleet.changed.wait(TICK)
            self.fleet.check()


class PoolScorer(AbstractScorer, AbstractOwner):
    """Groups are scored as members become free. ``in_order``: verdicts come in the order of submission, as in one process.

    A group whose scoring kills or hangs ``TRIES`` members is dropped with that reason; an exception in a reward ends the run.
    """

    def __init__(
        self,
        backend: AbstractBackend,
        schedule: Schedule,
        *,
        scorers: int,
        patience: float,
        in_order: bool,
        note: Callable[[str], None],
    ) -> None:
        self.schedule, self.in_order = schedule, in_order
        self.queue: deque[Group] = deque()
        self.held: dict[int, Group] = {}  # by member
        self.up: set[int] = set()
        self.order: deque[int] = deque()  # groups, as submitted
        self.done: dict[int, Scored] = {}
        self.ended: Counter[int] = Counter()  # members lost to a group
        self.reasons: dict[int, str] = {}  # of groups dropped without a verdict
        self.fleet = Fleet("reward worker", backend, self, patience=patience, note=note)
        self.fleet.start(scorers)

    @property
    def pending(self) -> int:
        with self.fleet.changed:
            return len(self.order)

    def submit(self, group: Group) -> None:
        with self.fleet.changed:
            self.order.append(group.index)
            self.queue.append(group)
            self._feed()

    def ready(self, *, wait: bool) -> Scored | None:
        with self.fleet.changed:
            if wait and not self.done and self.order and self.fleet.failure is None:
                self.fleet.changed.wait(TICK)
            self.fleet.check()
            # With max_staleness 0 the order of verdicts is part of the result, which must be that of one process.
            candidates = list(self.order)[:1] if self.in_order else list(self.done)[:1]
            for index in candidates:
                if index in self.done:
                    self.order.remove(index)
                    self.schedule.pipeline("s", index, self.reasons.pop(index, ""))
                    return self.done.pop(index)
            self.schedule.nothing()
        return None

    def close(self) -> None:
        self.fleet.close()

    def joined(self, member: int, answer: Any) -> None:
        self.up.add(member)
        self._feed()

    def answered(self, member: int, method: str, answer: Any) -> None:
        group = self.held.pop(member)
        self.done[group.index] = answer
        self._feed()

    def lost(self, member: int, hung: str) -> None:
        self.up.discard(member)
        group = self.held.pop(member, None)
        if group is not None:
            self.ended[group.index] += 1
            if self.ended[group.index] < TRIES:
                # In front: with rewards in order, all later verdicts wait for this one.
                self.queue.appendleft(group)
            else:
                reason = self.reasons[group.index] = "reward_hung" if hung else "reward_died"
                self.done[group.index] = Scored(index=group.index, outcome=Drop(reason))
        self._feed()

    def _feed(self) -> None:
        for member in sorted(self.up - self.held.keys()):
            if self.queue:
                self.held[member] = self.queue.popleft()
                self.fleet.call(member, "score", self.held[member])
