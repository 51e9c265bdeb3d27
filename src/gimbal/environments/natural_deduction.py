"""Theorems of propositional logic, and a prover that checks each tactic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import ClassVar, Literal
from zlib import crc32

from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, AbstractGenerated, Moment
from gimbal.records import Task

LETTERS, CONNECTIVES = "pqr", "&|>"
GOAL, BETWEEN = "?", ";"  # behind the hypotheses of a goal, and between goals
DEEPEST = 3  # choices on a path of a theorem's own proof
TRIES = 50_000  # goals that are drawn for one theorem

Goal = tuple[tuple[str, ...], str]  # hypotheses, and what follows from them


@lru_cache(maxsize=100_000)
def parts(formula: str) -> tuple[str, str]:
    """The two formulas that a connective joins: ">p&qr" has "p" and "&qr"."""
    at, missing = 1, 1
    while missing:
        missing += 1 if formula[at] in CONNECTIVES else -1
        at += 1
    return formula[1:at], formula[at:]


def written(goals: Sequence[Goal]) -> str:
    """Goals as text: "p,>pq?q;p?p" has two."""
    return BETWEEN.join(f"{','.join(known)}{GOAL}{wanted}" for known, wanted in goals)


def read(text: str) -> tuple[Goal, ...]:
    """The goals of such a text; ValueError where it holds none."""
    goals = []
    for part in text.strip().split(BETWEEN):
        known, sign, wanted = part.partition(GOAL)
        formulas = (*known.split(","), wanted) if known else (wanted,)
        if not sign or not all(map(_formula, formulas)):
            raise ValueError(
                f"{text!r:.80} is no list of goals: write each as hypotheses, {GOAL!r} and a formula, as in 'p,>pq?q'; connectives "
                f"{CONNECTIVES} stand before what they join, letters are {LETTERS}"
            )
        goals.append((formulas[:-1], wanted))
    return tuple(goals)


def _formula(text: str) -> bool:
    missing = 1
    for sign in text:
        if not missing or sign not in CONNECTIVES + LETTERS:
            return False
        missing += 1 if sign in CONNECTIVES else -1
    return not missing


def applied(goal: Goal, tactic: str) -> tuple[Goal, ...] | None:
    """The goals that a tactic leaves of a goal; None where it does not apply.

    - i: of A>B, assume A and show B.
    - s: of A&B, show both.
    - l, r: of A|B, show A, or B.
    - cN: take hypothesis N apart: A&B into both, A|B into two goals, one for each.
    - aN: hypothesis N is what is wanted, or leads to it: its premises are left to show, none where it is what is wanted.
    """
    known, wanted = goal
    name, number = tactic[:1], tactic[1:]
    if name in ("i", "s", "l", "r"):
        if number or wanted[0] != {"i": ">", "s": "&"}.get(name, "|"):
            return None
        one, other = parts(wanted)
        if name == "i":
            return ((_with(known, one), other),)
        return {"s": ((known, one), (known, other)), "l": ((known, one),), "r": ((known, other),)}[name]
    if not (number.isascii() and number.isdecimal() and len(number) < 4 and 1 <= int(number) <= len(known)):
        return None
    used = known[int(number) - 1]
    if name == "a":
        premises = []
        while used != wanted and used[0] == ">":
            premise, used = parts(used)
            premises.append(premise)
        return tuple((known, premise) for premise in premises) if used == wanted else None
    if name != "c" or used[0] not in "&|":
        return None
    rest, (one, other) = known[: int(number) - 1] + known[int(number) :], parts(used)
    return (
        ((_with(rest, one, other), wanted),)
        if used[0] == "&"
        else tuple((_with(rest, p), wanted) for p in (one, other))
    )


def _with(known: tuple[str, ...], *more: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, *more)))


def proof(goal: Goal, deepest: int, above: frozenset[Goal] = frozenset()) -> tuple[str, ...] | None:
    """Tactics that prove a goal, with at most ``deepest`` choices on a path, or None. What loses nothing comes first."""
    known, wanted = goal
    if wanted in known:
        return (f"a{known.index(wanted) + 1}",)
    sure = [name for name, sign in (("i", ">"), ("s", "&")) if wanted[0] == sign]
    sure += [f"c{n}" for n, used in enumerate(known, 1) if used[0] == "&"]
    sure += [f"c{n}" for n, used in enumerate(known, 1) if used[0] == "|"]
    if not sure and (not deepest or goal in above):
        return None
    tried = sure[:1] or [f"a{n}" for n in range(1, len(known) + 1)] + ["l", "r"]
    for tactic in tried:
        if (left := applied(goal, tactic)) is None:
            continue
        found = [tactic]
        for each in left:
            rest = proof(each, deepest, above) if sure else proof(each, deepest - 1, above | {goal})
            if rest is None:
                break
            found += rest
        else:
            return tuple(found)
    return None


class Proving(AbstractEnvironment):
    """A theorem's open goals. A tactic acts on the first of them."""

    def __init__(self) -> None:
        self.goals: tuple[Goal, ...] = ()

    def reset(self, task: Task, seed: int) -> None:
        self.goals = read(task.prompt)

    def step(self, action: str) -> Moment:
        left = applied(self.goals[0], action.strip())
        if left is None:
            return Moment(observation=written(self.goals), calls=1, errors=1)
        self.goals = (*left, *self.goals[1:])
        proved = not self.goals
        return Moment(observation=written(self.goals), reward=float(proved), terminated=proved, success=proved, calls=1)

    def fork(self) -> Proving:
        other = Proving()
        other.goals = self.goals
        return other


@dataclass(frozen=True, kw_only=True)
class NaturalDeduction(AbstractEnvironmentSpec):
    """Proves a theorem of propositional logic, intuitionistic and without negation, a tactic at a time: each turn is one, and is
    answered by the goals that are left (``applied`` has the tactics, ``Theorems`` the tasks). One that does not apply changes nothing
    and counts as an error of a tool. The last goal's end earns 1.

    A small exact system for methods of theorem proving; it is not Lean, and says nothing of what a model knows of mathematics.
    """

    pays: ClassVar[bool] = True

    def open(self) -> Proving:
        return Proving()


@dataclass(frozen=True, kw_only=True)
class Theorems(AbstractGenerated):
    """Provable goals of propositional logic at random, of two to four hypotheses over p, q and r.

    The prompt is the goal. ``columns["tactics"]`` is a proof of ``least`` to ``most`` tactics, ``columns["states"]`` what is open
    before each of them (``Segments`` cuts them). A fourth of all theorems, whatever their letters are called, is in the ``split``
    held_out only.
    """

    least: int = 3
    most: int = 10
    split: Literal["train", "held_out"] = "train"
    seed: int = 0
    size: int = 1_000_000

    def __post_init__(self) -> None:
        for name in ("least", "most", "size", "seed"):
            if isinstance(value := vars(self)[name], bool) or not isinstance(value, int):
                raise ValueError(
                    f"Theorems.{name} is {value!r}; it must be a whole number, such as {vars(Theorems)[name]}"
                )
        if self.size < 1:
            raise ValueError(f"Theorems.size is {self.size}; it is how many theorems there are, at least 1")
        if not 1 <= self.least <= self.most:
            raise ValueError(f"Theorems has proofs of {self.least} to {self.most} tactics; expected 1 <= least <= most")

    def task(self, index: int) -> Task:
        name = f"theorems:{self.split}:{self.seed}:{index}"
        states, tactics = _theorem(name, self.least, self.most, self.split)
        return Task(id=name, prompt=f"{states[0]}\n", columns={"states": list(states), "tactics": list(tactics)})


@lru_cache(maxsize=20_000)  # a millisecond each, and SFT reads them again and again
def _theorem(name: str, least: int, most: int, split: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is open before each tactic of a proof, and the tactics."""
    rng = Random(name)
    for _ in range(TRIES):
        known = dict.fromkeys(_drawn(rng, rng.randint(0, 2)) for _ in range(rng.randint(2, 4)))
        goal = (tuple(known), _drawn(rng, rng.randint(0, 2)))
        tactics = proof(goal, DEEPEST)
        if tactics and least <= len(tactics) <= most and _split(goal) == split:
            break
    else:
        raise ValueError(
            f"Theorems found none with a proof of {least} to {most} tactics among {TRIES:,} goals: set a smaller least, or a larger "
            "most"
        )
    states, goals = [], (goal,)
    for tactic in tactics:
        states.append(written(goals))
        goals = (*(applied(goals[0], tactic) or ()), *goals[1:])
    return tuple(states), tactics


def _split(goal: Goal) -> str:
    """The same for goals that differ in the names of letters alone."""
    text = written([goal])
    names = {letter: LETTERS[n] for n, letter in enumerate(dict.fromkeys(sign for sign in text if sign in LETTERS))}
    return "held_out" if crc32("".join(names.get(sign, sign) for sign in text).encode()) % 4 == 0 else "train"


def _drawn(rng: Random, connectives: int) -> str:
    if not connectives:
        return rng.choice(LETTERS)
    left = rng.randrange(connectives)
    return rng.choice(CONNECTIVES) + _drawn(rng, left) + _drawn(rng, connectives - 1 - left)
