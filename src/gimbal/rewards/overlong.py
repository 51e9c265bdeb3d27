"""A penalty on answers near the length limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gimbal.records import Group
from gimbal.rewards.base import AbstractReward


@dataclass(frozen=True, kw_only=True)
class OverlongPenalty(AbstractReward):
    """A soft penalty on overlong answers (DAPO, arXiv:2503.14476), added to the other rewards.

    0 up to limit - zone decisions; then falling linearly to -1 at ``limit``; -1 beyond.

    - ``zone`` = 0: 0 up to the limit, -1 beyond.
    """

    is_method: ClassVar[bool] = True

    limit: int = 64
    zone: int = 16
    name: str = "overlong"

    def __post_init__(self) -> None:
        if not 0 <= self.zone <= self.limit:
            raise ValueError(
                f"OverlongPenalty.zone is {self.zone}; it must be between 0 and {self.limit} decisions, the limit"
            )

    def __call__(self, group: Group) -> list[float | None]:
        return [self._penalty(rollout.length - rollout.given) for rollout in group.rollouts]

    def _penalty(self, length: int) -> float:
        start = self.limit - self.zone
        if length <= start:
            return 0.0
        return -1.0 if length > self.limit else (start - length) / self.zone
