"""What chance decided in a run of many processes, written down as it happens, so that ``replay.py`` can do it again.

The pipeline is a function of what its engine and its scorer answer, and a member's engine is one of the calls that it gets. So
two things are enough: which calls each member got and how many decisions of its batch each came to, and what the pipeline was answered.
Events, in order, as lists of small numbers (one line a learner step in ``schedule.jsonl``):

    j m           member m has joined                           a m new gone   it is to draw these, and to forget those
    l m v         it is to load version v                       r m n          it has answered, after n steps of its engine
    d m           it is lost                                    u              all are: the run was resumed
    v i v         the learner has published version v           t i keys       the pipeline took these rollouts
    c i key       the pipeline took a request back             s i g reason  the verdict on group g (a reason: it has none)

    n i           nothing, before the line ends

``i`` counts the times that the pipeline asked, engine or scorer, and there was nothing. A key is a group and a sample.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from gimbal.records import Group
from gimbal.runtime.members import packed

Event = list[Any]
COLUMNS = ("behavior_S", "version_S", "mask_S", "reward_S", "cost_S", "part_S", "turn_S")  # of a rollout


class Schedule:
    """The events since the last ``take``. The pump's threads and the pipeline's write into it."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._idle = 0
        self._lock = threading.Lock()

    def member(self, kind: str, *what: Any) -> None:
        with self._lock:
            self._events.append([kind, *what])

    def pipeline(self, kind: str, *what: Any) -> None:
        """Something that the pipeline's own thread did or got."""
        with self._lock:
            self._events.append([kind, self._idle, *what])
            self._idle = 0

    def nothing(self) -> None:
        """The pipeline asked in vain."""
        self._idle += 1

    def take(self) -> list[Event]:
        with self._lock:
            events, self._events = self._events, []
            if self._idle:
                events.append(["n", self._idle])
            self._idle = 0
            return events

    def state(self) -> dict[str, Any]:
        """What ``take`` would give, left where it is, for a checkpoint."""
        with self._lock:
            return {"events": list(self._events), "idle": self._idle}

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint: what was pending there comes before what has happened since the start of this process."""
        with self._lock:
            self._events = [*state["events"], ["u"], *self._events]
            self._idle = state["idle"]


def digest(groups: Sequence[Group]) -> str:
    """Of every bit that the rollout half hands to the learning half: decisions, log-probs, versions, masks, rewards, in their order."""
    hasher = hashlib.blake2b(digest_size=16)
    for group in groups:
        for rollout in group.rows:
            plain = (
                group.index,
                rollout.task.id,
                rollout.sample,
                rollout.stop,
                rollout.score,
                sorted(rollout.scores.items()),
            )
            hasher.update(repr(plain).encode())
            own = {name: getattr(rollout, name) for name in COLUMNS}
            for name, column in (vars(rollout.decisions) | own).items():
                if isinstance(column, Tensor):
                    data, dtype, shape = packed({"": column})[""]
                    hasher.update(f"{name}{dtype}{shape}".encode())
                    hasher.update(data.tobytes())
    return hasher.hexdigest()
