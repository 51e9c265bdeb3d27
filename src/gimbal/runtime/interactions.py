"""Which methods may stand together: refusals and warnings by the table in rules.py, and rewards that are named and not there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from gimbal.rewards.base import AbstractReward
from gimbal.runtime.cast import Cast
from gimbal.runtime.rules import REFUSED, WARNED
from gimbal.runtime.run import Run

# Fields of parts that hold names of rewards.
NAMES = (
    "rewards",
    "right",
    "preference",
    "outcome",
    "economy",
    "gate",
    "necessary",
    "steps",
)


def refuse(run: Run) -> None:
    """ValueError with the first reason there is."""
    cast = Cast(run)
    for rule, reason in REFUSED:
        if rule(cast):
            raise ValueError(reason)
    known = {reward.name for reward in run.rewards}
    for part in cast.parts:
        unknown = sorted(set(_names(part)) - known)
        if unknown and not isinstance(part, AbstractReward):
            raise ValueError(
                f"{type(part).__name__} reads the reward {unknown[0]!r}, and this run has {sorted(known) or 'none'}: add a reward of "
                "that name (weight 0 if it only measures), or name another"
            )


def warn(run: Run) -> list[str]:
    cast = Cast(run)
    return [reason for rule, reason in WARNED if rule(cast)]


def _names(part: Any) -> Iterator[str]:
    """The rewards that a part names."""
    for item in fields(part):
        value = getattr(part, item.name)
        if isinstance(value, str) and value.startswith("score/"):
            yield value.removeprefix("score/")
        elif item.name in NAMES:
            listed = value if isinstance(value, tuple) else (value,)
            yield from (name for name in listed if isinstance(name, str) and name)
