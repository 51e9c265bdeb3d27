"""Environments whose attributes (a mass, a length, a force) are set by their names: ``Pendulum-v1@m=1.5,l=0.8``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Any

from gimbal.config.classes import nearest

MOST_VARIANTS = 64  # of one environment: each is live, and has figures of its own


def split(source: str) -> tuple[str, dict[str, float]]:
    """The name of an environment without its attributes, and these; ValueError where one is no number."""
    place, colon, name = source.rpartition(":")
    name, _, given = name.partition("@")
    values: dict[str, float] = {}
    for pair in given.split(",") if "@" in source.rpartition(":")[2] else ():
        attribute, _, text = pair.partition("=")
        try:
            values[attribute] = float(text)
        except ValueError:
            values[attribute] = math.nan
        if not attribute.isidentifier() or not math.isfinite(values[attribute]):
            raise ValueError(
                f"{source} sets {pair!r}; behind the @ are attributes and their numbers, as in Pendulum-v1@m=1.5,l=0.8"
            )
    return place + colon + name, values


def variants(source: str, grid: Mapping[str, tuple[float, ...]]) -> tuple[str, ...]:
    """The names of every combination of the grid's values; without a grid the source alone."""
    mark = "," if split(source)[1] else "@"
    combined = product(*([f"{name}={value:.12g}" for value in values] for name, values in grid.items()))
    return tuple(source + mark + ",".join(pairs) for pairs in combined) if grid else (source,)


def check_grid(source: str, grid: Mapping[str, tuple[float, ...]], size: int) -> None:
    """ValueError where a grid has no values, one twice, or more combinations than there are episodes."""
    fixed, count = split(source)[1], math.prod(map(len, grid.values()))
    for name, values in grid.items():
        if not name.isidentifier() or not values or len({f"{value:.12g}" for value in values}) < len(values):
            raise ValueError(f"grid has {name}: {list(values)}; give each attribute one value or more, each once")
        if not all(map(math.isfinite, values)) or name in fixed:
            wrong = f"{source} sets already" if name in fixed else f"has {list(values)}, not all of them finite"
            raise ValueError(f"grid gives values to {name}, which {wrong}: set it once, to finite numbers")
    if count > min(size, MOST_VARIANTS):
        raise ValueError(
            f"grid has {count} combinations, and there are {size} episodes; every combination needs one, and {MOST_VARIANTS} are the "
            "most: leave out values, or raise size"
        )


def adjust(env: Any, values: Mapping[str, float], source: str) -> None:
    """Set attributes of the innermost environment, each of which must be there and a number.

    What its constructor has computed from them stays as it was, except the masses and moments of gymnasium's CartPole, which its
    steps read in place of the attributes.
    """
    inner = env.unwrapped
    there = {name: value for kind in reversed(type(inner).__mro__) for name, value in vars(kind).items()} | vars(inner)
    has = {name: value for name, value in there.items() if _number(value) and not name.startswith("_")}
    for name, value in values.items():
        if name not in has:
            raise ValueError(
                f"{source} sets {name}, and {type(inner).__name__} has no such number{nearest(name, has)}; it has "
                f"{', '.join(sorted(has)) or 'none'}"
            )
        whole = isinstance(has[name], int) and value.is_integer()
        setattr(inner, name, int(value) if whole else value)
    if type(inner).__module__ == "gymnasium.envs.classic_control.cartpole":
        inner.total_mass = inner.masspole + inner.masscart
        inner.polemass_length = inner.masspole * inner.length


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
