"""Format of a completion."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from gimbal.records import Group
from gimbal.rewards.base import AbstractReward


@dataclass(frozen=True, kw_only=True)
class Pattern(AbstractReward):
    """1 if the whole completion (stripped) matches a regular expression, else 0: a format reward.

    The default requires reasoning followed by an answer, each in its tags, and nothing else.
    """

    is_method: ClassVar[bool] = True

    pattern: str = r"(?s)<think>.+</think>\s*<answer>.+</answer>"
    name: str = "format"

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ValueError(f"Pattern.pattern {self.pattern!r} is not a valid regular expression: {error}") from error

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def __call__(self, group: Group) -> list[float | None]:
        return [float(self._compiled.fullmatch(rollout.text.strip()) is not None) for rollout in group.rollouts]
