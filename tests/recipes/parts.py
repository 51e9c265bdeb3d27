"""How the table of mechanisms is written: a part, what stands there without it, and what its metric does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trials import APART

from gimbal import recipes
from gimbal.runtime.run import Run

Steps = Sequence[Mapping[str, float]]  # the metrics of each
Moves = Callable[[Steps, Steps, int], bool]


@dataclass(frozen=True)
class Part:
    """A part that defines a recipe.

    ``moves`` says whether the metric shows it, by the metrics with the part, those without, and the first step that took the
    weights apart.
    """

    name: str
    without: Callable[[Run], Run]
    metric: str
    moves: Moves
    apart: float


@dataclass(frozen=True)
class Mechanism:
    """What defines a recipe. ``steps``: how many until every part acts. ``prompts`` of a step; 0 are as many as make 16 rollouts.
    ``seed`` of the run.

    ``sooner`` are the fields of schedules, by their class, with which they pass in these few steps. ``start`` gives
    the recipe what it must be given.
    """

    parts: tuple[Part, ...]
    steps: int = 2
    prompts: int = 0
    seed: int = 0
    sooner: Mapping[type, Mapping[str, Any]] = field(default_factory=dict)
    start: Callable[[Run], Run] = lambda run: run


@dataclass(frozen=True)
class Check:
    """A metric, what it does, and the fields that take the part out where the parent's own do not."""

    metric: str
    moves: Moves
    fields: dict[str, Any] | None = None
    apart: float = APART

    def by(self, **fields: Any) -> Check:
        return replace(self, fields=fields)

    def exactly(self) -> Check:
        """Without it the same sums are taken in the same order, so that any difference at all is its own."""
        return replace(self, apart=0.0)


def shown(metric: str, holds: Callable[[Sequence[float]], bool]) -> Check:
    """``holds`` of what the metric was, and the part did it: without it the metric is not there, or another in the very step that took
    the weights apart. Until then the two were one run, so what differs there is the part's own doing."""

    def moves(mine: Steps, without: Steps, step: int) -> bool:
        seen = [metrics[metric] for metrics in mine if metric in metrics]
        if not seen or not holds(seen):
            return False
        if not any(metric in metrics for metrics in without):
            return True
        value, other = mine[step][metric], without[step][metric]
        return abs(value - other) > 1e-5 * max(abs(value), abs(other))

    return Check(metric, moves)


def above(metric: str, bound: float = 0.0) -> Check:
    return shown(metric, lambda seen: max(seen) > bound)


def below(metric: str, bound: float = 1.0) -> Check:
    return shown(metric, lambda seen: min(seen) < bound)


def varies(metric: str) -> Check:
    """It does not keep one value over the steps."""
    return shown(metric, lambda seen: len(set(seen)) > 1)


def differs(metric: str) -> Check:
    return shown(metric, lambda seen: True)


def of(
    parent: str,
    steps: int = 2,
    prompts: int = 0,
    seed: int = 0,
    sooner: Mapping[type, Mapping[str, Any]] | None = None,
    start: Callable[[Run], Run] = lambda run: run,
    **checks: Check,
) -> Mechanism:
    """A recipe whose parts are fields that its parent has otherwise; ``a__b`` are two that only go together."""

    def without(name: str, check: Check) -> Callable[[Run], Run]:
        def change(run: Run) -> Run:
            if check.fields is not None:
                return replace(run, **check.fields)
            base = recipes.function(parent)()
            return replace(run, **{field: getattr(base, field) for field in name.split("__")})

        return change

    parts = (Part(name, without(name, check), check.metric, check.moves, check.apart) for name, check in checks.items())
    return Mechanism(tuple(parts), steps, prompts, seed, sooner or {}, start)
