"""Environments of attempts: opened on the first action, called in threads, and restored from their history."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from gimbal.composition import parts_of
from gimbal.config.own import LARGEST, learnable, raised
from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, Failure, Moment
from gimbal.environments.tools import Answering
from gimbal.ops.deadline import DESK, Call, Hung, Late
from gimbal.records import Fault, Lateness, Task, is_chat
from gimbal.sandbox.base import AbstractSandboxSpec
from gimbal.sandbox.live import Untrusted
from gimbal.waiting import tell
from gimbal.workflows.base import Act

HALVES = re.compile("[\ud800-\udfff]")  # to look at each letter in Python takes longer than most tools
LONGEST_ANSWER = 200_000  # characters of an observation: to encode a megabyte only to cut it takes longer than a step


@dataclass(frozen=True)
class Upto:
    """A text action that continues an earlier one: the first ``length`` characters of text number ``text`` of its seat. Each turn's
    action is all text so far, and would otherwise be stored once per turn."""

    text: int
    length: int


class Unrepeatable(ValueError):
    """An environment that does not return to its earlier state."""


class Seat:
    """One environment of an attempt. ``history`` is all its actions, None being a reset; ``said`` its recorded answers before the run
    was stopped: repeated actions must get the same answers."""

    def __init__(self, spec: AbstractEnvironmentSpec, task: Task, seed: int) -> None:
        self.spec, self.task, self.seed = spec, task, seed
        self.history: list[Any] = []
        self.texts: list[str] = []  # see Upto
        self.said: dict[int, Moment] = {}
        self.live: AbstractEnvironment | None = None
        self.done = 0  # of the history, by the live one
        self.closed = False
        self.broken = ""
        self.fault: Fault = spec.fault
        self.late: Lateness = False

    def follow(self, other: Seat, actions: int) -> None:
        """Start from the state of ``other`` after so many actions."""
        self.texts = list(other.texts)
        for place, action in enumerate(other.history):
            if action is not None and actions == 0:
                break
            actions -= action is not None
            self.history.append(action)
            if place in other.said:
                self.said[place] = other.said[place]
        if other.live is not None and other.done == len(self.history) == len(other.history):
            try:
                self.live, self.done = other.live.fork(), other.done
            except NotImplementedError:  # its history does as well
                return

    def enter(self, action: Any) -> int:
        """Returns its position in the history."""
        if not self.history and action is not None:
            self.history.append(None)
        self.history.append(self._entered(action))
        return len(self.history) - 1

    def _entered(self, action: Any) -> Any:
        if not isinstance(action, str):
            return action
        if self.texts and action.startswith(self.texts[-1]):
            self.texts[-1] = action
        else:
            self.texts.append(action)
        return Upto(len(self.texts) - 1, len(action))

    def begin(self, act: Act, place: int) -> Call:
        """Do the action at this position, after all earlier ones that are still to do; each has its own time."""
        turn = sum(action is not None for action in self.history[:place])
        what = self._stepping if self.history[place] is not None else self._beginning
        run = partial(self._bring, place, act)
        return DESK.call(what, run, deadline=act.deadline, task=self.task.id, turn=turn)

    @property
    def _stepping(self) -> str:
        return f"tool {type(self.spec).__name__}"

    @property
    def _beginning(self) -> str:
        return f"setup of {type(self.spec).__name__}"

    def answer(self, call: Call) -> Moment:
        """The result of the call, with an error as data: an environment's exception is not the policy's fault."""
        if self.broken:
            return Moment(error=self.broken, fault=self.fault, late=self.late)
        try:
            moment = call.result()
        except (Unrepeatable, Hung, Untrusted):  # these end the run
            raise
        except Late as error:
            self.broken, self.late = str(error), "setup" if error.what == self._beginning else True
        except BaseException as error:
            # Whatever was raised in its thread is its own (an exit, a cancelled coroutine), for signals come to the main thread alone.
            if error is not call.error:
                raise
            self.broken = f"{call.name} raised {raised(error)}"
            if isinstance(error, Failure):
                self.broken = str(error)
                self.fault = error.fault
                self.late = error.late and ("setup" if call.what == self._beginning else True)
        else:
            if not (fault := _unusable(moment)):
                return replace(moment, seconds=call.took)
            self.broken = f"{call.name} {fault}"
        if not self.spec.repeats:
            self.close()  # a program of its own goes with its episode
        self.live = None  # whatever state it is in, and a thread that hangs may still be in it
        return Moment(error=self.broken, fault=self.fault, late=self.late)

    def close(self) -> None:
        """Does not wait for it to end."""
        self.closed = True
        if (live := self.live) is not None and not isinstance(live, Answering):
            DESK.call(f"close of {type(self.spec).__name__}", lambda call: live.close(), task=self.task.id)
        self.live = None

    def _bring(self, place: int, act: Act, call: Call) -> Moment:
        if self.live is None:
            call.go_on(self.task.id, 0, self._beginning, act.setup or act.deadline)
            self.live, self.done = self.spec.open(), 0
        live, moment = self.live, Moment()
        if isinstance(live, Answering):  # its state is the task: nothing needs to be done again
            live.reset(self.task, self.seed)
            self.done = place
        for at in range(self.done, place + 1):
            action = self.history[at]
            if action is not None:
                turn = sum(action is not None for action in self.history[:at])
                call.go_on(self.task.id, turn, self._stepping, act.deadline)
            elif self.done:  # else it has begun as it was opened
                call.go_on(self.task.id, 0, self._beginning, act.setup or act.deadline)
            if isinstance(action, Upto):
                action = self.texts[action.text][: action.length]
            moment = Moment(observation=live.reset(self.task, self.seed)) if action is None else live.step(action)
            self.done = at + 1
            if self.closed or call.given_up:  # while it was at work: nobody waits for it any more
                live.close()
                self.live = None
                raise Failure("it was closed", self.spec.fault)
            if at in self.said and not _alike(moment, self.said[at]):
                said = (
                    f"{type(self.spec).__name__} does not come back to the same observation for task {self.task.id} when its seed and "
                    "actions are repeated"
                )
                if not self.spec.repeats:
                    raise Failure(said, self.spec.fault)
                raise Unrepeatable(f"{said}; an environment that cannot be replayed cannot be resumed")
        return moment


def attack_sandboxes(workflow: Any) -> None:
    """Before the first rollout: later it would take the rollout's time, and a failure would be the rollout's."""
    for part in parts_of(workflow):
        if isinstance(part, AbstractSandboxSpec):
            _said(type(part).__name__, part.attack())


@cache
def _said(rung: str, held: tuple[str, ...]) -> None:
    """Once a process, as the attacks are."""
    tell(f"{rung} held off {len(held)} attacks on itself: {', '.join(held)}")


def seat(seats: dict[int, Seat], act: Act, task: Task, seed: int) -> Seat:
    """The seat of this call; a new one if there is none."""
    if act.seat not in seats:
        seats[act.seat] = Seat(act.environment, task, seed)
        if act.after is not None and act.after[0] in seats:
            seats[act.seat].follow(seats[act.after[0]], act.after[1])
    return seats[act.seat]


def _unusable(moment: Any) -> str:
    """Why an answer is invalid, or ""."""
    if not isinstance(moment, Moment):
        return f"answered with {type(moment).__name__}; an environment's step returns a Moment"
    if learnable(moment.reward) is None:
        return f"answered with the reward {moment.reward!r:.60}; it must be a finite number of size {LARGEST:g} at most"
    said = moment.observation
    if is_chat(said):  # messages: what is said in them
        said = "".join(message["content"] for message in said if isinstance(message["content"], str))
    if isinstance(said, Moment):
        return "began with a Moment; reset returns only the first observation (text, or None)"
    if isinstance(said, str):
        if len(said) > LONGEST_ANSWER:
            return f"answered with {len(said):,} characters; at most {LONGEST_ANSWER:,} are read"
        if HALVES.search(said):
            return "answered with half of a surrogate pair, which is not text"
    return ""


def _alike(one: Moment, other: Moment) -> bool:
    mine: Sequence[Any] = (one.reward, one.terminated, one.truncated)
    if is_chat(one.observation) or is_chat(other.observation):
        return mine == (other.reward, other.terminated, other.truncated) and one.observation == other.observation
    return mine == (other.reward, other.terminated, other.truncated) and np.array_equal(
        np.asarray(one.observation), np.asarray(other.observation)
    )
