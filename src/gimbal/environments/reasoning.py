"""Procedural tasks of reasoning-gym, by name and parameters."""

from __future__ import annotations

import difflib
import json
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from typing import Any

from gimbal.environments.base import AbstractGenerated
from gimbal.ops import stable_hash
from gimbal.records import Task

SECONDS = 10.0  # of the processor's time, for the first task with some parameters: it takes milliseconds
MOST_EXCLUDED = 1_000_000
ATTEMPTS = 100  # other entries tried in place of one that is held out


@dataclass(frozen=True, kw_only=True)
class ReasoningGym(AbstractGenerated):
    """``size`` entries of a reasoning-gym dataset; ``parameters`` are the dataset's own (``max_terms``, ...).

    ``seed`` is hashed before it is given to the library, which generates entry i from seed + i: without the hash, seeds
    0 and 1 would share nearly all entries. Two sets of a small task can still overlap by chance: an entry whose
    question is in ``exclude`` is replaced by the same entry of further seeds, so the two share no question.
    ``suffix`` ends the prompt, where the model continues.

    A few datasets (isomorphic_strings, polynomial_multiplication, ransom_note) iterate over sets of strings: they
    give the same entries in another process only if PYTHONHASHSEED is set.
    """

    name: str = "chain_sum"
    seed: int = 0
    size: int = 10_000
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    exclude: ReasoningGym | None = None
    suffix: str = "\n"

    def __post_init__(self) -> None:
        if self.exclude is not None and self.exclude.size > MOST_EXCLUDED:
            raise ValueError(
                f"{self.name} leaves out the questions of {self.exclude.size:,} tasks, and makes all of them to know these: exclude at "
                f"most {MOST_EXCLUDED:,}"
            )
        if self.size < 1:
            raise ValueError(f"size of {self.name} is {self.size}; it must be a number of tasks, at least 1")

    def task(self, index: int) -> Task:
        entry = self._entry(index)
        return Task(
            id=f"{self.name}-{stable_hash(self._parameters) % 16**6:06x}:{self.seed}:{index}",
            prompt=entry["question"] + self.suffix,
            answer=entry["answer"],
            source=self.name,
            columns={"question": entry["question"], "metadata": entry["metadata"], "parameters": dict(self.parameters)},
        )

    @cached_property
    def _parameters(self) -> str:
        return json.dumps(dict(self.parameters), sort_keys=True)

    def _entry(self, index: int) -> dict[str, Any]:
        for attempt in range(ATTEMPTS):
            # numpy's generators take no more than 32 bits.
            seed = stable_hash("reasoning_gym", self.seed, attempt) % 2**31
            entry = _dataset(self.name, self._parameters, seed, self.size)[index]
            if self.exclude is None or entry["question"] not in _questions(self.exclude):
                return entry
        raise ValueError(
            f"{ATTEMPTS} entries of {self.name} in a row are held out: with these parameters it has too few different "
            "tasks; enlarge them, or hold out fewer"
        )


class Endless(ValueError):
    """Parameters with which no task is made in reasonable time."""


@cache
def _questions(tasks: ReasoningGym) -> frozenset[str]:
    return frozenset(tasks._entry(index)["question"] for index in range(tasks.size))


def names() -> list[str]:
    """Every dataset the installed reasoning-gym knows."""
    return sorted(_datasets())


def _datasets() -> dict[str, Any]:
    with warnings.catch_warnings():
        # Of cellpylib, each time where no bytecode can be kept.
        warnings.filterwarnings("ignore", '"is" with', SyntaxWarning)
        import reasoning_gym  # it takes a second, and only runs that use it should wait

    return reasoning_gym.factory.DATASETS


@cache
def _dataset(name: str, parameters: str, seed: int, size: int) -> Any:
    """One live dataset a process; the user's mistakes come out as ValueErrors that name the nearest right thing."""
    known = _datasets()
    if name not in known:
        raise ValueError(f"reasoning-gym has no dataset {name!r}{_nearest(name, known)}")
    make, configuration = known[name]
    values = json.loads(parameters)
    allowed = {f.name for f in fields(configuration)} - {"seed", "size"}
    for key in values:
        if key not in allowed:
            raise ValueError(f"{name} has no parameter {key!r}{_nearest(key, allowed)}; it has {sorted(allowed)}")
    try:
        with _limited(f"{name} with the parameters {values}"):
            made = make(configuration(**values, seed=seed, size=size))
            made[0]
        return made
    except Endless:
        raise
    except (
        AssertionError,
        TypeError,
        ValueError,
        OverflowError,
        MemoryError,
    ) as error:  # what the library's own checks raise
        raise ValueError(f"{name} refuses the parameters {values}: {error}") from error


@contextmanager
def _limited(what: str) -> Iterator[None]:
    """ValueError where a task takes too long to make: a count without end is accepted by most datasets. Signals, which alone end a
    loop of somebody else's, come to the main thread; a run makes its first tasks there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(number: int, frame: object) -> None:
        raise Endless(f"{what} makes no task in {SECONDS:g} s of processor time; make its numbers smaller")

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before or signal.SIG_DFL)


def _nearest(word: str, known: Any) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.4)
    return f"; did you mean {close[0]!r}?" if close else ""
