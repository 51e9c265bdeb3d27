"""The thread that drives the engine behind an endpoint: requests in, rollouts out, even if one of them fails."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue

from torch import Tensor

from gimbal.engines.base import AbstractEngine, Request
from gimbal.records import Rollout

MOST_WAITING = 1024  # answers in progress or queued; more are refused, so that a flood affects only its senders
PROGRESS_SECONDS = 0.05  # between two looks at answers that are being streamed


class Busy(RuntimeError):
    """The limit on answers in progress is reached."""


class EngineError(RuntimeError):
    """The engine raised while generating this answer."""


@dataclass(kw_only=True, eq=False)
class Awaited:
    """A request and where its rollout goes. ``progress`` receives what is generated so far, in the driver's thread."""

    request: Request
    progress: Callable[[Rollout], None] | None = None
    future: Future[Rollout] = field(default_factory=Future)


class Driver:
    """Steps the engine while there is something to generate.

    An error of ``engine.step`` does not name its request. All requests are then taken out of the engine and run again one at a time:
    the one that fails is answered with the error, the others with the rollouts they would have had anyway, since those depend only on
    their own seeds. Requests that arrive meanwhile wait.
    """

    def __init__(self, engine: AbstractEngine, most: int = MOST_WAITING) -> None:
        self.engine, self.most = engine, most
        self.failure: BaseException | None = None  # nothing can be drawn any more
        self.drops: Counter[str] = Counter()
        self.answered = 0
        self.under_way = 0
        self._lock = threading.Lock()  # of the counts
        self._engine_lock = threading.Lock()
        self._inbox: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._drawing: dict[tuple[int, int], Awaited] = {}
        self._suspects: deque[Awaited] = deque()  # to be drawn alone, after an error
        self._held: deque[Awaited] = deque()  # arrived while there were suspects
        self._looked = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(self, ticket: Awaited) -> None:
        """Raises Busy. ``ticket.future`` receives the rollout."""
        with self._lock:
            if self.under_way >= self.most:
                self.drops["busy"] += 1
                raise Busy(
                    f"{self.under_way} answers are in progress, the most that this server allows; try again in a moment"
                )
            self.under_way += 1
        ticket.future.set_running_or_notify_cancel()  # from here on it ends by this thread's word alone
        ticket.future.add_done_callback(self._ended)
        self._inbox.put(partial(self._enter, ticket))

    def cancel(self, ticket: Awaited, reason: str) -> None:
        """Give the answer up, and count it."""
        self._inbox.put(partial(self._leave, ticket, reason))

    def drop(self, reason: str, count: int = 1) -> None:
        """Counted by several threads."""
        with self._lock:
            self.drops[reason] += count

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        """New weights, between two steps of the engine: answers under way continue with them."""
        with self._engine_lock:
            if version < self.engine.version:
                raise ValueError(
                    f"version {version} is older than {self.engine.version}, which is loaded; versions only rise: pass learner.version"
                )
            self.engine.load(version, state)

    def close(self) -> None:
        """Cancel everything in progress."""
        self._inbox.put(None)
        self._thread.join()

    def _ended(self, future: Future[Rollout]) -> None:
        with self._lock:
            self.under_way -= 1
            self.answered += future.exception() is None

    def _run(self) -> None:
        while True:
            try:
                # Everything that has come goes in before the next step, so that it is drawn together.
                order = self._inbox.get(block=not self._drawing)
            except Empty:
                self._step()
                continue
            if order is None:
                break
            order()
        self._fail_all(self.failure or ConnectionAbortedError("the endpoint is closing"))

    def _enter(self, ticket: Awaited) -> None:
        if self.failure is not None:
            ticket.future.set_exception(self.failure)
        elif self._suspects or self._held:
            self._held.append(ticket)
        else:
            self._draw(ticket)

    def _draw(self, ticket: Awaited) -> None:
        try:
            with self._engine_lock:
                self.engine.submit(ticket.request)
        except Exception as error:  # of this request alone: nothing has been drawn
            ticket.future.set_exception(error)
            return
        self._drawing[ticket.request.key] = ticket

    def _leave(self, ticket: Awaited, reason: str) -> None:
        if ticket.future.done():
            if ticket.future.exception() is None:  # drawn, and nobody has it
                self.drop(reason)
            return
        self.drop(reason)
        if self._drawing.pop(ticket.request.key, None) is not None:
            self._out_of_engine([ticket])
        for queue in (self._suspects, self._held):
            if ticket in queue:
                queue.remove(ticket)
        if not ticket.future.done():
            ticket.future.set_exception(ConnectionAbortedError(f"given up: {reason}"))
        self._go_on()

    def _step(self) -> None:
        try:
            with self._engine_lock:
                finished = self.engine.step()
        except Exception as error:
            self._find_culprit(error)
        else:
            for done in finished:
                self._drawing.pop(done.key).future.set_result(done.rollout)
            self._show_progress()
        self._go_on()

    def _find_culprit(self, error: Exception) -> None:
        several, self._drawing = list(self._drawing.values()), {}
        self._out_of_engine(several)
        if self.failure is not None:
            return
        if len(several) == 1:
            self.drop("engine error")
            several[0].future.set_exception(EngineError(f"the engine failed: {error}"))
        else:
            self._suspects.extend(several)

    def _out_of_engine(self, tickets: list[Awaited]) -> None:
        try:
            with self._engine_lock:
                for ticket in tickets:
                    self.engine.cancel(ticket.request.key)
        except Exception as error:  # an engine that cannot even let go holds who knows what
            self.failure = EngineError(f"the engine failed and cannot continue: {error}")
            for ticket in tickets:
                ticket.future.set_exception(self.failure)
            self._fail_all(self.failure)

    def _go_on(self) -> None:
        """After an error: the next suspect where none is being drawn, then all that was held."""
        while self._suspects and not self._drawing:
            self._draw(self._suspects.popleft())
        if self._held and not self._drawing:
            held, self._held = self._held, deque()
            for ticket in held:
                self._draw(ticket)

    def _fail_all(self, error: BaseException) -> None:
        left = [*self._drawing.values(), *self._suspects, *self._held]
        self._drawing, self._suspects, self._held = {}, deque(), deque()
        for ticket in left:
            ticket.future.set_exception(error)

    def _show_progress(self) -> None:
        heard = {key: ticket.progress for key, ticket in self._drawing.items() if ticket.progress is not None}
        if not heard or time.monotonic() - self._looked < PROGRESS_SECONDS:
            return
        self._looked = time.monotonic()
        try:
            with self._engine_lock:
                shown = self.engine.partial_rollouts()
        except ValueError:  # this engine cannot show what is unfinished: its answers come in one piece
            return
        for done in shown:
            if done.key in heard:
                heard[done.key](done.rollout)
