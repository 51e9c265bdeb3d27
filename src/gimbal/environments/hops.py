"""Questions of two hops over relations that stand in no prompt, so that a model has to know them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Literal

from gimbal.config.classes import nearest
from gimbal.environments.base import AbstractGenerated
from gimbal.records import Task

ENTITIES, RELATIONS = "0123456789", "ABCDEF"
FAMILIES = "ABC", "DEF"
KINDS = ("within", "across")


@dataclass(frozen=True, kw_only=True)
class Hops(AbstractGenerated):
    """Questions of two hops over six relations, each a permutation of ten digits, that stand in no prompt.

    "AB", a line end and "3" asks for B of A of 3. The answer, also as ``columns["completion"]``, is where each hop leads: "71",
    if A of 3 is 7 and B of 7 is 1. A, B and C are one family, D, E and F another. The ``kinds``, each as often as another: *within*
    asks for two relations of one family, the atomic skills; *across* for one of each, in either order, the composite one. Of the 18
    pairs across, 12 are asked in the ``split`` train and the other 6 in held_out; those within are the same in both. ``source`` is
    the kind.

    The relations are drawn from ``world``, tasks from (``seed``, index).
    """

    kinds: tuple[str, ...] = KINDS
    split: Literal["train", "held_out"] = "train"
    world: int = 0
    seed: int = 0
    size: int = 1_000_000

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise ValueError(f"Hops has no kind {kind!r}{nearest(kind, KINDS)}; there are {', '.join(KINDS)}")
        if not self.kinds:
            raise ValueError(f"Hops.kinds is empty; name one or more of {', '.join(KINDS)}")

    @property
    def sources(self) -> tuple[str, ...]:
        return self.kinds if len(self.kinds) > 1 else ()

    def task(self, index: int) -> Task:
        rng = Random(f"hops:{self.split}:{self.seed}:{index}")
        kind = rng.choice(self.kinds)
        asked, start = rng.choice(questions(kind, self.split)), rng.choice(ENTITIES)
        known, at = relations(self.world), start
        path = "".join(at := known[relation][at] for relation in asked)
        return Task(
            id=f"hops:{self.split}:{self.seed}:{index}",
            prompt=f"{asked}\n{start}",
            answer=path,
            source=kind,
            columns={"completion": path},
        )


@cache
def relations(world: int) -> Mapping[str, Mapping[str, str]]:
    """Name -> entity -> entity."""
    rng = Random(f"hops world:{world}")
    return {name: dict(zip(ENTITIES, rng.sample(ENTITIES, len(ENTITIES)), strict=True)) for name in RELATIONS}


@cache
def questions(kind: str, split: str) -> tuple[str, ...]:
    """The pairs of relations that are asked, in order. Those held out leave every relation in trained pairs, in both places."""
    within = [one + other for names in FAMILIES for one in names for other in names]
    if kind == "within":
        return tuple(within)
    pairs = [(i, j) for i in range(6) for j in range(6) if RELATIONS[i] + RELATIONS[j] not in within]
    return tuple(RELATIONS[i] + RELATIONS[j] for i, j in pairs if ((i + j) % 3 == 0) == (split == "held_out"))
