"""What to type so that a reward of one's own goes beside those by which a recipe works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, Field, fields

from gimbal.rewards.base import AbstractReward

OWN = "file.py:function"


def methods(rewards: Sequence[AbstractReward]) -> list[AbstractReward]:
    """Those that a run is scored by and that are more than scorers of answers."""
    return [reward for reward in rewards if reward.is_method and reward.weight]


def names(rewards: Sequence[AbstractReward]) -> str:
    """Their classes, each once."""
    return " and ".join(dict.fromkeys(type(reward).__name__ for reward in rewards))


def together(kept: Sequence[AbstractReward], rewards: Sequence[AbstractReward], own: str = OWN) -> str:
    """These of a recipe's rewards beside one's own. It only measures (weight 0) where all that the recipe's answers are judged by does.
    It comes first, because the first reward decides what is solved.
    """
    scorers = [reward for reward in rewards if not reward.is_method]
    own += "*0" * (bool(scorers) and not any(reward.weight for reward in scorers))
    return f"'reward={','.join((own, *map(typed, kept)))}'"


def typed(reward: AbstractReward) -> str:
    """Its constructor with the fields that are not at their defaults."""
    own = vars(reward)
    given = [
        f"{item.name}={own[item.name]!r}" for item in fields(reward) if item.init and own[item.name] != _start(item)
    ]
    return f"{type(reward).__name__}({', '.join(given)})"


def _start(item: Field[object]) -> object:
    return item.default_factory() if item.default_factory is not MISSING else item.default
