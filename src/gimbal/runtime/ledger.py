"""Bookkeeping of requests spread over workers that come, go, hang and die.

Pure: it knows neither processes nor time, so that a test may hurt it thousands of times a second. What it promises: each request
that is entered comes out of ``finish`` exactly once unless it is cancelled, whatever becomes of the workers that held it.
"""

from __future__ import annotations

from dataclasses import dataclass

from gimbal.engines.base import Request

Key = tuple[int, int]


class Overtaken(AssertionError):
    """A decision older than its request: an order of calls that the staleness bound rests on was not kept."""


@dataclass(frozen=True)
class Ticket:
    """One attempt at a request. An answer counts only under the newest ticket of its request.

    ``version`` is that of the weights that had been sent to the worker before the request was.
    """

    number: int
    worker: int
    version: int
    request: Request


class Ledger:
    """Every open request, the worker that holds it (if there is one), and under which ticket.

    ``together``: what waits of one group goes to one worker, for it is driven there as one attempt; apart, each part of it would be an
    attempt of its own, and branches would lack the trunk that another worker has.
    """

    def __init__(self, *, together: bool = False) -> None:
        self.together = together
        self.held: dict[Key, Ticket] = {}
        self.waiting: dict[Key, Request] = {}  # with no worker; in the order in which they came
        self.load: dict[int, int] = {}  # requests of each worker present
        self.issued = 0
        self.repeated = 0  # requests taken from a worker that left
        self.late = 0  # answers that came when nobody waited for them any more

    @property
    def open(self) -> int:
        return len(self.held) + len(self.waiting)

    def requests(self) -> list[Request]:
        """All that is open, in the order of dispatch."""
        found = [*(ticket.request for ticket in self.held.values()), *self.waiting.values()]
        return sorted(found, key=lambda request: request.key)

    def enter(self, request: Request) -> None:
        assert request.key not in self.held and request.key not in self.waiting, f"{request.key} is open already"
        self.waiting[request.key] = request

    def join(self, worker: int) -> None:
        assert worker not in self.load, f"worker {worker} is there already"
        self.load[worker] = 0

    def leave(self, worker: int) -> list[Request]:
        """The worker is gone, and what it held waits again, before everything else."""
        del self.load[worker]
        lost = [ticket.request for ticket in self.held.values() if ticket.worker == worker]
        for request in lost:
            del self.held[request.key]
        self.waiting = {request.key: request for request in lost} | self.waiting
        self.repeated += len(lost)
        return lost

    def hand_out(self, version: int) -> dict[int, list[Ticket]]:
        """Give what waits to the least loaded workers, the first of equals; nothing if there are none."""
        given: dict[int, list[Ticket]] = {}
        if not self.load:
            return given
        homes: dict[int, int] = {}  # the worker of each group
        for request in self.waiting.values():
            worker = min(self.load, key=lambda one: (self.load[one], one))
            if self.together:
                worker = homes.setdefault(request.group, worker)
            ticket = Ticket(self.issued, worker, version, request)
            self.held[request.key] = ticket
            self.load[worker] += 1
            self.issued += 1
            given.setdefault(worker, []).append(ticket)
        self.waiting = {}
        return given

    def finish(self, worker: int, number: int, key: Key, oldest: int | None) -> bool:
        """Whether this answer counts; ``oldest`` is the version that drew its oldest decision, None where the sample was given up."""
        ticket = self.held.get(key)
        if ticket is None or ticket.number != number or ticket.worker != worker:
            self.late += 1
            return False
        if oldest is not None and oldest < ticket.version:
            raise Overtaken(f"{key} was sent to worker {worker} after version {ticket.version}, and drawn by {oldest}")
        del self.held[key]
        self.load[worker] -= 1
        return True

    def cancel(self, key: Key) -> int | None:
        """Close the request; the worker that must be told, if one holds it."""
        if self.waiting.pop(key, None) is not None:
            return None
        ticket = self.held.pop(key)
        self.load[ticket.worker] -= 1
        return ticket.worker
