"""The state of each session by name: its answers, whether it is open, and which of them are only on file."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gimbal import durable
from gimbal.serve.asked import score_of
from gimbal.serve.exchanges import Exchange, Session, ended, read, rewarded, written

REWARDED, TAKEN = "after the reward", "after it was taken"  # why an answer came too late


class Over(ValueError):
    """The session takes no more requests: they would not be part of its reward, or of what its learner has."""

    def __init__(self, name: str, reason: str) -> None:
        what = "has its reward" if reason == REWARDED else "was taken"
        super().__init__(f"session {name!r} {what} and is over; use a new name for each episode")
        self.reason = reason


class Sessions:
    """A name is one episode: a reward ends it, and so does taking it. Only the unnamed session, shared by requests without a name,
    never ends, and has no reward."""

    def __init__(self, record: Path | None, keep: int | None) -> None:
        self.record, self.keep = record, keep
        self.open: dict[str, Session] = {}  # that which has been silent for longest comes first
        self.rewarded: dict[str, Session] = {}  # and not taken yet
        self.over: dict[str, str] = {}  # why
        self.away: set[str] = set()  # not all of whose answers are in memory: the others are on file, if there is one
        self._held = 0  # answers in memory
        self._lock = threading.Lock()  # of all this and of the file
        if record is not None:
            _begin(record)
            found = ended(record) if record.is_file() else {}
            self.away = set(found) - {""}
            self.over = {name: REWARDED for name, over in found.items() if over and name}

    def going_on(self, name: str) -> None:
        """Raises Over."""
        if name in self.over:
            raise Over(name, self.over[name])

    def said(self, name: str) -> tuple[Exchange, ...]:
        """The answers of a session that are in memory."""
        with self._lock:
            session = self.open.get(name)
        return () if session is None else session.exchanges

    def in_memory(self, name: str) -> Session:
        """The session as far as its answers are in memory."""
        with self._lock:
            return self.open.get(name, Session(name=name))

    def remember(self, name: str, exchanges: Sequence[Exchange]) -> None:
        """They are on record when it returns."""
        lines = "".join(written(exchange) + "\n" for exchange in exchanges)
        with self._lock:
            self.going_on(name)
            if self.record is not None:
                durable.append(self.record, lines)
            session = self.open.pop(name, Session(name=name))
            self.open[name] = replace(session, exchanges=(*session.exchanges, *exchanges))
            self._held += len(exchanges)
            while self.keep is not None and self._held > self.keep:
                self._forget()

    def reward(self, name: str, given: object) -> None:
        score = score_of(given)
        if not name:
            raise ValueError("a reward is for a session with a name, and ends it: POST it to /NAME/v1/reward")
        with self._lock:
            self.going_on(name)
            if name not in self.open and name not in self.away:
                raise ValueError(f"session {name!r} has no answers, so there is nothing to reward")
            if name not in self.open and self.record is None:
                raise ValueError(
                    f"the answers of session {name!r} are gone: this server has no record, and keeps the newest {self.keep}"
                )
            if self.record is not None:
                durable.append(self.record, rewarded(name, score) + "\n")
            self.over[name] = REWARDED
            if name in self.open:
                self.rewarded[name] = replace(self.open.pop(name), score=score)

    def take(self, name: str) -> Session:
        """All of it; afterwards only the fact that it is over is kept."""
        with self._lock:
            if name:
                self.over.setdefault(name, TAKEN)
            held = self.rewarded if name in self.rewarded else self.open
            found = held.pop(name, Session(name=name))
            self._held -= len(found.exchanges)
            away = name in self.away
            self.away.discard(name)
        on_file = read(self.record, name) if away and self.record is not None and self.record.is_file() else []
        return on_file[-1] if on_file else found  # a file of earlier versions may have several of one name

    def _forget(self) -> None:
        """A whole session that is over, where there is one; else the first answer of the one that has been silent for longest."""
        if self.rewarded:
            name = next(iter(self.rewarded))
            self._held -= len(self.rewarded.pop(name).exchanges)
        else:
            name = next(iter(self.open))
            _, *left = self.open[name].exchanges
            self._held -= 1
            if left:
                self.open[name] = replace(self.open[name], exchanges=tuple(left))
            else:
                del self.open[name]
        self.away |= {name} - {""}


def _begin(record: Path) -> None:
    """A file that cannot be written to is better known now than after the first answer was drawn."""
    device = record.exists() and not record.is_file()  # such as /dev/full, which opens
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        durable.append(record, "\n" if device else "")
    except OSError as error:  # the one who chose the name can choose another
        raise ValueError(f"cannot append to record {record} ({error.strerror or error}); name another file") from error
