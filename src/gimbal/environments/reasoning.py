"""Procedural tasks of reasoning-gym, by name and parameters."""

from __future__ import annotations

import difflib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from typing import Any

from gimbal.environments.base import AbstractTasks
from gimbal.ops import stable_hash
from gimbal.records import Task

ATTEMPTS = 100  # other entries tried in place of one that is held out


@dataclass(frozen=True, kw_only=True)
class ReasoningGym(AbstractTasks):
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
        if self.size < 1:
            raise ValueError(f"size of {self.name} is {self.size}; it must be a number of tasks, at least 1")

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self.size:
            raise IndexError(f"task {index} of {self.size}")
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
            seed = (
                stable_hash("reasoning_gym", self.seed, attempt) % 2**31
            )  # numpy's generators take no more than 32 bits
            entry = _dataset(self.name, self._parameters, seed, self.size)[index]
            if self.exclude is None or entry["question"] not in _questions(self.exclude):
                return entry
        raise ValueError(
            f"{ATTEMPTS} entries of {self.name} in a row are held out: with these parameters it has too few different "
            "tasks; enlarge them, or hold out fewer"
        )


@cache
def _questions(tasks: ReasoningGym) -> frozenset[str]:
    return frozenset(tasks._entry(index)["question"] for index in range(tasks.size))


def names() -> list[str]:
    """Every dataset the installed reasoning-gym knows."""
    return sorted(_datasets())


def _datasets() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", '"is" with', SyntaxWarning
        )  # of cellpylib, each time where no bytecode can be kept
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
        return make(configuration(**values, seed=seed, size=size))
    except (AssertionError, TypeError, ValueError) as error:  # what the library's own checks raise
        raise ValueError(f"{name} refuses the parameters {values}: {error}") from error


def _nearest(word: str, known: Any) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.4)
    return f"; did you mean {close[0]!r}?" if close else ""
