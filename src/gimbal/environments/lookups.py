"""Questions of several look-ups, each in a page of facts of which one matters; and how they are answered, alone or by delegating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from string import ascii_lowercase
from typing import Any

from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, AbstractGenerated, Moment
from gimbal.records import Task

KEYS = "ABCDE"
ALONE, PLANS = ":", "!"  # one for each look-up, behind the key that a question begins with
LOOKS, DELEGATES, END = (
    "?",
    ">",
    ";",
)  # what follows a key that is looked up, a key that is delegated, and all that is told


@dataclass(frozen=True, kw_only=True)
class Lookups(AbstractGenerated):
    """Questions of ``hops`` look-ups: the value of a key says which key to look up next, and the answer is the last one and its value.

    A key is one of five letters, and its value one of two digits that no other key has: 0 or 1 for A, 2 or 3 for B, ... An even value
    leads to the next letter, an odd one to the letter after it. "A::" asks for the value of A, and, if that is 1, for that of C: "C5".

    The environment Pages answers "A?" with a page of ``facts`` facts, such as "A1C5hqB3;", of which A's is true. The others are
    distractors: up to four are other keys with wrong values, so that a page read for one key misleads about the next, and those
    beyond are pairs of letters. ``mark`` tells how to answer: ":" by looking up, "!" by delegating, or whatever a policy was
    taught. Generated from (``seed``, index).
    """

    hops: int = 2
    facts: int = 9
    mark: str = ALONE
    seed: int = 0
    size: int = 1_000_000

    def __post_init__(self) -> None:
        if self.hops < 1 or self.facts < 1:
            raise ValueError(
                f"Lookups has hops={self.hops} and facts={self.facts}; both count from 1, look-ups and facts of a page"
            )

    def task(self, index: int) -> Task:
        rng = Random(f"lookups:{self.seed}:{index}")
        values = "".join(str(2 * place + rng.randrange(2)) for place in range(len(KEYS)))
        first = key = rng.choice(KEYS)
        for _ in range(self.hops - 1):
            key = following(values[KEYS.index(key)])
        return Task(
            id=f"lookup:{self.seed}:{index}",
            prompt=first + self.mark * self.hops,
            answer=key + values[KEYS.index(key)],
            columns={"values": values, "facts": self.facts},
        )


def following(value: str) -> str:
    """The key that this value leads to."""
    return KEYS[(int(value) // 2 + 1 + int(value) % 2) % len(KEYS)]


def other(value: str) -> str:
    """The other value of its key."""
    return str(int(value) ^ 1)


def page(task: Task, key: str) -> str:
    """What is found under a key: its fact among distractors, the same whenever it is looked up."""
    rng = Random(f"page:{task.id}:{key}")
    values: dict[str, str] = dict(zip(KEYS, task.columns["values"], strict=True))
    wrong = [one + other(value) for one, value in values.items() if one != key]
    rng.shuffle(wrong)
    letters = ["".join(rng.choices(ascii_lowercase, k=2)) for _ in range(task.columns["facts"])]
    facts = [key + values[key], *[*wrong, *letters][: task.columns["facts"] - 1]]
    rng.shuffle(facts)
    return "".join(facts) + END


@dataclass(frozen=True, kw_only=True)
class Pages(AbstractEnvironmentSpec):
    """Answers a turn that ends in a key and "?" with the key's page; any other turn ends the episode, as its answer. It pays nothing.

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
        said = str(action).strip()
        if not said.endswith(LOOKS):
            return Moment(terminated=True)
        key = said[-2:-1]
        if not key or key not in KEYS:
            return Moment(observation=END, calls=1, errors=1)
        return Moment(observation=page(self.task, key), calls=1)

    def fork(self) -> Turning:
        copied = Turning()
        copied.task = self.task
        return copied


@dataclass(frozen=True, kw_only=True)
class LookupTurns(AbstractGenerated):
    """Turns of agents on Lookups, for SFT: what is seen so far, and what is said next as ``columns["completion"]``.

    *alone* looks up all keys in one context; *planner* delegates each look-up and reads only the result; *executor* does one of them
    alone. Who reads a page says what it found, such as "A1C?" before the next look-up. Each style is as often drawn as it has turns.
    A page is misread with probability ``slips``, for the other value of its key, and what follows keeps to it. Pages have from 1 to
    ``facts`` facts. ``end`` is the model's end of a turn, as text. Generated from (``seed``, index).
    """

    hops: int = 2
    facts: int = 9
    slips: float = 0.1
    end: str = "<eos>"
    seed: int = 0
    size: int = 1_000_000

    def task(self, index: int) -> Task:
        rng = Random(f"lookup turns:{self.seed}:{index}")
        lookups = Lookups(hops=self.hops, facts=rng.randint(1, self.facts), seed=self.seed)
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
        key, found, turns = task.prompt[0], "", list[tuple[str, str]]()
        for _ in range(1 if style == "executor" else self.hops):
            value = task.columns["values"][KEYS.index(key)]
            value = other(value) if rng.random() < self.slips else value
            asks, found = found + key + LOOKS, key + value
            turns.append((key + DELEGATES, found + END) if style == "planner" else (asks, page(task, key)))
            key = following(value)
        return [*turns, (found, "")]
