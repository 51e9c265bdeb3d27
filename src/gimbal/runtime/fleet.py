"""A fleet: members in their own processes that are called, timed, replaced when they die or hang, added and removed.

Calls on one member are executed in the order in which they are made. One thread (the pump) waits for answers and hands them to the
owner; the owner's hooks run under the fleet's lock. Nothing here knows how a member is run: see ``AbstractBackend``.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gimbal.engines.base import Unserved
from gimbal.learning.weight_sync.delta import SyncError

TICK = 0.02  # seconds of the longest wait for an answer before everything is looked at again
START_SECONDS = 300.0  # for a member's process to be up, imports included
ASIDE_SECONDS = 5.0  # for a member that hangs to say in what
LOSSES_IN_A_ROW = 12  # members lost with no answer in between, after which replacing them is given up


class Died(Exception):
    """A member's process or machine is gone."""


class AbstractBackend(ABC):
    """How members are run. References (what ``call`` and ``put`` return) are hashable and mean nothing elsewhere."""

    @abstractmethod
    def spawn(self) -> Any:
        """A handle to a new member, which may still be starting."""

    @abstractmethod
    def call(self, handle: Any, method: str, arguments: Sequence[Any]) -> Any:
        """Call a method after all earlier calls on this member; arguments that ``put`` returned arrive as what was put."""

    @abstractmethod
    def aside(self, handle: Any) -> Any:
        """Ask ``doing`` of a member at once, though it is in another call."""

    @abstractmethod
    def put(self, value: Any) -> Any:
        """Keep a value where every member can read it, as long as the reference is held."""

    @abstractmethod
    def wait(self, references: Sequence[Any], seconds: float) -> Sequence[Any]:
        """Those whose answers are there, as soon as there is one, or none after so many seconds."""

    @abstractmethod
    def get(self, reference: Any) -> Any:
        """The answer. Raises Died, or what the member raised."""

    @abstractmethod
    def kill(self, handle: Any) -> None:
        """Kill the member at once, whatever it is doing."""


class AbstractOwner(ABC):
    """Whom a fleet tells what happens. Called under its lock, so it must not block."""

    @abstractmethod
    def joined(self, member: int, answer: Any) -> None:
        """``start`` has returned: the member may be called."""

    @abstractmethod
    def answered(self, member: int, method: str, answer: Any) -> None: ...

    @abstractmethod
    def lost(self, member: int, hung: str) -> None:
        """It is gone with all that it held; ``hung``: in which call, if that is why it was ended."""


@dataclass(kw_only=True)
class FleetMember:
    """A process of the fleet. Only the head of its calls is being executed, since ``since``."""

    handle: Any
    since: float
    calls: deque[tuple[Any, str]] = field(default_factory=deque)  # reference, method; in order
    up: bool = False
    aside: tuple[Any, float] | None = None  # asked what it is doing: reference, when


class Fleet:
    """``patience`` seconds is the longest that one call may take before its member is ended and replaced."""

    def __init__(
        self, name: str, backend: AbstractBackend, owner: AbstractOwner, *, patience: float, note: Callable[[str], None]
    ) -> None:
        self.name, self.backend, self.owner, self.patience, self._note = name, backend, owner, patience, note
        # Reentrant: the owner's hooks run under it and call members, which takes it again.
        self.changed = threading.Condition(threading.RLock())
        self.members: dict[int, FleetMember] = {}
        self.failure: Exception | None = None  # ends the run: raised by ``check`` in the owner's thread
        self.lost_in_a_row = 0
        # Numbers are never given twice: a schedule must tell a replacement from what it replaces.
        self._numbered = 0
        self._notes: deque[str] = deque()
        self._stopping = False
        self._pump = threading.Thread(target=self._run, name=f"gimbal-{name}", daemon=True)

    def start(self, members: int) -> None:
        for _ in range(members):
            self.add()
        self._pump.start()

    def add(self) -> int:
        """Add a member; it joins when it is up."""
        with self.changed:
            member, self._numbered = self._numbered, self._numbered + 1
            self.members[member] = FleetMember(handle=self.backend.spawn(), since=time.monotonic())
            self.call(member, "start")
            return member

    def remove(self, member: int) -> None:
        """Remove a member permanently; the owner gives its work to others."""
        with self.changed:
            gone = self.members.pop(member)
            if gone.up:
                self.owner.lost(member, "")
            self.backend.kill(gone.handle)

    def call(self, member: int, method: str, *arguments: Any) -> None:
        with self.changed:
            one = self.members[member]
            # Patience counts from when a call could begin; behind others it only waits.
            if not one.calls:
                one.since = time.monotonic()
            one.calls.append((self.backend.call(one.handle, method, arguments), method))
            self.changed.notify_all()

    def queued(self, member: int, method: str) -> int:
        """Calls of this method that have not been answered."""
        return sum(method == other for _, other in self.members[member].calls)

    def check(self) -> None:
        """Report pending notes, and raise what ended the fleet. Call from the run's thread."""
        # The pump may not write to the console, which belongs to the thread of the run.
        while self._notes:
            self._note(self._notes.popleft())
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        with self.changed:
            self._stopping = True
            self.changed.notify_all()
        # Before the members are killed: the pump would take their end for a loss and start new ones.
        if self._pump.is_alive():
            self._pump.join()
        for member in self.members.values():
            self.backend.kill(member.handle)
        self.members.clear()

    def _run(self) -> None:
        try:
            while not self._stopping:
                with self.changed:
                    # Heads alone: answers come in order, and one that waits in a queue must not look like one that hangs.
                    heads = {one.calls[0][0]: member for member, one in self.members.items() if one.calls}
                    if not heads:
                        self.changed.wait(TICK)
                        continue
                for reference in self.backend.wait(list(heads), TICK):
                    self._settle(heads[reference], reference)
                with self.changed:
                    for member in list(self.members):
                        self._time(member)
        except Exception as error:  # a fault of ours; without this the run would wait for ever
            with self.changed:
                self.failure = self.failure or error
                self.changed.notify_all()

    def _settle(self, member: int, reference: Any) -> None:
        """Take the answer of a member's head call."""
        try:
            answer = self.backend.get(reference)
        except (Died, SyncError) as error:
            # One whose weights are in doubt must draw nothing: another begins with all of them.
            with self.changed:
                if member in self.members:
                    self._lose(member, f"died ({error})" if isinstance(error, Died) else f"is ended: {error}", "")
            return
        except Exception as error:  # what the member's own code raised: to be raised where the run is
            with self.changed:
                if member in self.members:
                    self.failure = self.failure or error
                    self.members[member].calls.popleft()
                    self.changed.notify_all()
            return
        with self.changed:
            if member not in self.members:  # removed in between
                return
            one = self.members[member]
            _, method = one.calls.popleft()
            one.since, one.aside = time.monotonic(), None
            if method == "start":
                one.up = True
                self.owner.joined(member, answer)
            else:
                # An answer to a call is progress; a start is not, for a member may start well and die at its first call each time.
                self.lost_in_a_row = 0
                self.owner.answered(member, method, answer)
            self.changed.notify_all()

    def _time(self, member: int) -> None:
        """Kill a member whose head call takes too long, after asking what it is doing."""
        one, now = self.members[member], time.monotonic()
        if not one.calls or now - one.since <= (self.patience if one.up else START_SECONDS):
            return
        if one.aside is None and one.up:
            # A hang without a culprit cannot be fixed: it is asked which tool or reward it is in before it is ended.
            one.aside = (self.backend.aside(one.handle), now)
            return
        doing = "its start"
        if not any(other.up for other in self.members.values()):
            self.failure = self.failure or Unserved(
                f"no {self.name} was up after {now - one.since:.0f} s: check that it has CPUs and memory left"
            )
        if one.aside is not None:
            reference, asked = one.aside
            doing = one.calls[0][1]
            if self.backend.wait([reference], 0.0):
                try:
                    doing = self.backend.get(reference) or doing
                except Exception as error:  # it could not say; that is no reason not to end it
                    doing = f"{doing} ({error})"
            elif now - asked < ASIDE_SECONDS:
                return
        self._lose(member, f"did not return for {now - one.since:.1f} s: {doing}", doing)

    def _lose(self, member: int, why: str, hung: str) -> None:
        gone = self.members.pop(member)
        self.backend.kill(gone.handle)
        self.lost_in_a_row += 1
        if gone.up:
            self.owner.lost(member, hung)
        # What kills every member that holds it would kill replacements for ever, and the run would look busy.
        if self.lost_in_a_row >= LOSSES_IN_A_ROW:
            self.failure = self.failure or Unserved(
                f"{self.lost_in_a_row} {self.name} processes were lost in a row before any of them finished its work; the last, "
                f"{self.name} {member}, {why}. Fix the cause and continue with --resume"
            )
        else:
            self._notes.append(f"{self.name} {member} {why}; it is replaced, and its work is repeated")
            self.add()
        self.changed.notify_all()
