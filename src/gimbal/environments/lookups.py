"""Questions of several look-ups, each in a page of facts of which one matters; and how they are answered, alone or by delegating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, AbstractGenerated, Moment
from gimbal.records import Task

ALONE, PLANS = ":", "!"  # one for each look-up, behind the key that a question begins with
LOOKS, DELEGATES, END = (
    "?",
    ">",
    ";",
)  # what follows a key that is looked up, a key that is delegated, and all that is told


@dataclass(frozen=True, kw_only=True)
class Lookups(AbstractGenerated):
    """Questions of ``hops`` look-ups: the value of a key, as a capital letter, is the next key.

    "A::" asks for the value of A, say "f", and then for that of F, which is the answer. The environment Pages answers "A?" with a page
    of ``facts`` facts, such as "KxAfMp;", of which one is A's. The others are distractors: each key but the one that was looked up has
    a wrong value, and may be the one to look up next. ``mark`` tells how to answer: ":" by looking up, "!" by delegating, or whatever
    a policy was taught. Generated from (``seed``, index).
    """

    hops: int = 2
    facts: int = 8
    mark: str = ALONE
    seed: int = 0
    size: int = 1_000_000

    def __post_init__(self) -> None:
        if self.hops < 1 or not 1 <= self.facts <= len(ascii_uppercase):
            raise ValueError(
                f"Lookups has hops={self.hops} and facts={self.facts}: 1 or more look-ups, and pages of 1 to 26 facts"
            )

    def task(self, index: int) -> Task:
        rng = Random(f"lookups:{self.seed}:{index}")
        values = "".join(rng.choices(ascii_lowercase, k=len(ascii_uppercase)))
        first = key = rng.choice(ascii_uppercase)
        for _ in range(self.hops):
            key = value_of(values, key).upper()
        return Task(
            id=f"lookup:{self.seed}:{index}",
            prompt=first + self.mark * self.hops,
            answer=key.lower(),
            columns={"values": values, "facts": self.facts},
        )


def value_of(values: str, key: str) -> str:
    return values[ascii_uppercase.index(key)]


def page(task: Task, key: str) -> str:
    """What is found under a key: its fact among distractors, the same whenever it is looked up."""
    rng, values = Random(f"page:{task.id}:{key}"), task.columns["values"]
    others = rng.sample([other for other in ascii_uppercase if other != key], task.columns["facts"] - 1)
    wrong = [(one, rng.choice([v for v in ascii_lowercase if v != value_of(values, one)])) for one in others]
    facts = [(key, value_of(values, key)), *wrong]
    rng.shuffle(facts)
    return "".join(one + value for one, value in facts) + END


@dataclass(frozen=True, kw_only=True)
class Pages(AbstractEnvironmentSpec):
    """Answers a key and "?" with its page, and any other turn ends the episode, as its answer. It pays nothing.

    For tasks of Lookups.
    """

    def open(self) -> AbstractEnvironment:
        return Turning()


class Turning(AbstractEnvironment):
    def __init__(self) -> None:
        self.task = Task(id="")

    def reset(self, task: Task, seed: int) -> None:
        if not isinstance(task.columns.get("values"), str) or "facts" not in task.columns:
            raise ValueError(f"task {task.id} has no values of keys, which Pages looks up; give tasks=Lookups()")
        self.task = task

    def step(self, action: Any) -> Moment:
        key, looks = str(action).strip()[:-1], str(action).strip()[-1:] == LOOKS
        if not looks:
            return Moment(terminated=True)
        if len(key) != 1 or key not in ascii_uppercase:
            return Moment(observation=END, calls=1, errors=1)
        return Moment(observation=page(self.task, key), calls=1)

    def fork(self) -> Turning:
        other = Turning()
        other.task = self.task
        return other


@dataclass(frozen=True, kw_only=True)
class LookupTurns(AbstractGenerated):
    """Turns of agents on Lookups, for SFT: what is seen so far, and what is said next as ``columns["completion"]``.

    *alone* looks up all keys in one context; *planner* delegates each look-up and reads only the result; *executor* does one of them
    alone. Each is as often drawn as it has turns. A value is read off a page wrongly, as that of another fact, with probability
    ``slips``, and what follows keeps to it. Pages have from 2 to ``facts`` facts. ``end`` is the model's end of a turn, as text.
    Generated from (``seed``, index).
    """

    hops: int = 2
    facts: int = 8
    slips: float = 0.25
    end: str = "<eos>"
    seed: int = 0
    size: int = 1_000_000

    def task(self, index: int) -> Task:
        rng = Random(f"lookup turns:{self.seed}:{index}")
        lookups = Lookups(hops=self.hops, facts=rng.randint(2, self.facts), seed=self.seed)
        task = lookups[rng.randrange(len(lookups))]
        style = rng.choices(("alone", "planner", "executor"), (self.hops + 1, self.hops + 1, 2))[0]
        turns = self._turns(task, style, rng)
        at = rng.randrange(len(turns))
        marks = {"alone": ALONE * self.hops, "planner": PLANS * self.hops, "executor": ALONE}
        seen = task.prompt[0] + marks[style] + "".join(said + self.end + told for said, told in turns[:at])
        return Task(
            id=f"lookup turn:{self.seed}:{index}", prompt=seen, source=style, columns={"completion": turns[at][0]}
        )

    def _turns(self, task: Task, style: str, rng: Random) -> Sequence[tuple[str, str]]:
        """(What is said, what is told) turn by turn; to the last one nothing is told."""
        key, turns = task.prompt[0], list[tuple[str, str]]()
        for _ in range(1 if style == "executor" else self.hops):
            found = page(task, key)
            place = found.index(key) + 1
            if rng.random() < self.slips:
                place = rng.choice([other for other in range(1, len(found), 2) if other != place])
            value = found[place]
            turns.append((key + DELEGATES, value + END) if style == "planner" else (key + LOOKS, found))
            key = value.upper()
        return [*turns, (key.lower(), "")]
