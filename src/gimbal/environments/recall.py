"""A stream of facts, piece by piece, and a question at its end: what is not kept in the context is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from string import ascii_lowercase
from typing import Any, ClassVar

from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, AbstractGenerated, Moment
from gimbal.records import Task

QUESTION, ASKS = "AB?\n", "="  # what stands before a stream, and at its end
VALUES = "01234", "56789"  # of A, and of B


@dataclass(frozen=True, kw_only=True)
class Streams(AbstractGenerated):
    """Streams of facts. A fact is a key and its value; the values of the keys A and B are asked at the end, those of others never.

    A stream has ``pieces`` lines of ``facts`` facts, such as "kxA2mp", which the environment Recall shows one by one. A and B each
    stand in one line; A's value is a digit from 0 to 4, B's one from 5 to 9, and the others' are letters, so that a small model sees
    what matters. ``answer`` is the value of A and that of B. With ``shown`` the prompt already has that many of the last lines and
    the question, for a single turn. Generated from (``seed``, index).
    """

    pieces: int = 4
    facts: int = 4
    shown: int = 0
    seed: int = 0
    size: int = 1_000_000

    def __post_init__(self) -> None:
        if self.pieces < 1 or self.facts < 2 or not 0 <= self.shown <= self.pieces:
            raise ValueError(
                f"Streams has pieces={self.pieces}, facts={self.facts} and shown={self.shown}: 1 or more lines, 2 or more facts a "
                "line, and at most as many lines shown as there are"
            )

    def task(self, index: int) -> Task:
        rng = Random(f"streams:{self.seed}:{index}")
        facts = {"A": str(rng.randrange(5)), "B": str(rng.randrange(5, 10))}
        places = {key: rng.randrange(self.pieces) for key in facts}
        lines = []
        for number in range(self.pieces):
            line = [key + value for key, value in facts.items() if places[key] == number]
            line += ["".join(rng.choices(ascii_lowercase, k=2)) for _ in range(self.facts - len(line))]
            rng.shuffle(line)
            lines.append("".join(line) + "\n")
        prompt = QUESTION + ("".join(lines[-self.shown :]) + ASKS if self.shown else "")
        return Task(
            id=f"stream:{self.seed}:{index}", prompt=prompt, answer="".join(facts.values()), columns={"lines": lines}
        )


@dataclass(frozen=True, kw_only=True)
class Recall(AbstractEnvironmentSpec):
    """Shows the lines of a stream one by one, whatever the policy says, then "=", and judges the turn after that: 1 if it is the
    answer, else 0.

    For tasks of Streams.
    """

    pays: ClassVar[bool] = True

    def open(self) -> AbstractEnvironment:
        return Recalling()


class Recalling(AbstractEnvironment):
    def __init__(self) -> None:
        self.task, self.at = Task(id=""), 0

    def reset(self, task: Task, seed: int) -> str:
        if not isinstance(lines := task.columns.get("lines"), list | tuple) or not lines:
            raise ValueError(f"task {task.id} has no column lines, which Recall shows; give tasks=Streams()")
        self.task, self.at = task, 1
        return str(lines[0])

    def step(self, action: Any) -> Moment:
        lines: list[str] = list(self.task.columns["lines"])
        self.at += 1
        if self.at <= len(lines):
            return Moment(observation=lines[self.at - 1])
        if self.at == len(lines) + 1:
            return Moment(observation=ASKS)
        return Moment(reward=float(str(action).strip() == self.task.answer), terminated=True)

    def fork(self) -> Recalling:
        other = Recalling()
        other.task, other.at = self.task, self.at
        return other


@dataclass(frozen=True, kw_only=True)
class KeepingStyles:
    """How often each style begins a trace; the three sum to 1."""

    careful: float = 0.4
    careless: float = 0.3
    idle: float = 0.3

    def __post_init__(self) -> None:
        total = sum(vars(self).values())
        if min(vars(self).values()) < 0 or abs(total - 1) > 1e-9:
            raise ValueError(f"shares {vars(self)} must be at least 0 and sum to 1")


@dataclass(frozen=True, kw_only=True)
class StreamTurns(AbstractGenerated):
    """Turns of an agent on Streams, for SFT: what it sees, and what it says next as ``columns["completion"]``.

    An edit is "-" and the values that are kept, such as "-27": it drops the rest. The styles: *careful* keeps all known values at every
    line, *careless* each of them or not, by chance; *idle* says nothing, and sees as many of the last lines as fit in ``window``
    characters. At "=" each answers what it sees, and guesses what it does not. A tenth of the turns are single ones, behind any number
    of lines. ``end`` is the model's end of a turn, as text.
    """

    streams: Streams = Streams()
    styles: KeepingStyles = KeepingStyles()
    window: int = 19
    end: str = "<eos>"
    seed: int = 0
    size: int = 1_000_000

    def task(self, index: int) -> Task:
        rng = Random(f"stream turns:{self.seed}:{index}")
        lines = [*self.streams[rng.randrange(len(self.streams))].columns["lines"], ASKS]
        style = rng.choices(list(vars(self.styles)), list(vars(self.styles).values()))[0]
        if rng.random() < 0.1:
            style, seen = "whole", lines[-rng.randint(2, len(lines)) :]
            said = answer(seen, rng)
        else:
            upto = len(lines) if rng.random() < 0.3 else rng.randrange(1, len(lines))
            seen, said = self._turn(lines[:upto], style, rng)
        prompt = QUESTION + "".join(seen)
        return Task(id=f"turn:{self.seed}:{index}", prompt=prompt, source=style, columns={"completion": said})

    def _turn(self, lines: Sequence[str], style: str, rng: Random) -> tuple[list[str], str]:
        """What is seen at the last of these lines, and what is said to it."""
        seen, said = list[str](), ""
        for number, line in enumerate(lines, start=1):
            while len("".join(seen).replace(self.end, "|")) + len(line) > self.window:
                seen = seen[1:]
            seen = [*seen, line]
            keep = 1.0 if style == "careful" else 0.5
            said = "-" + "".join(value for value in known(seen) if rng.random() < keep)
            said = "" if style == "idle" else answer(seen, rng) if line == ASKS else said
            if number < len(lines):
                seen = [*seen[:-1], line + self.end] if style == "idle" else [said + self.end]
        return seen, answer(seen, rng) if lines[-1] == ASKS else said


def known(seen: Sequence[str]) -> list[str]:
    """The values of A and B as far as they stand in these lines and edits."""
    digits = [letter for letter in "".join(seen) if letter.isdigit()]
    return [next(value for value in digits if value in own) for own in VALUES if set(own) & set(digits)]


def answer(seen: Sequence[str], rng: Random) -> str:
    """The values as far as they are seen; the others are guessed."""
    found = known(seen)
    return "".join(next((value for value in found if value in own), rng.choice(own)) for own in VALUES)
