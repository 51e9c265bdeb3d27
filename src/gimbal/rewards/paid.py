"""What an environment pays, among the rewards of a run."""

from __future__ import annotations

from dataclasses import dataclass

from gimbal.records import Group
from gimbal.rewards.base import AbstractReward


@dataclass(frozen=True, kw_only=True)
class Paid(AbstractReward):
    """What the environment paid for an episode. With weight 0, the default, it adds nothing to the score; where it comes first, an
    episode that was paid 1 has solved its task: ``reward='Paid(),file.py:function*0.1'``.

    A run without rewards goes by what is paid. With a reward of one's own beside it, the first of these would decide instead.
    """

    name: str = "paid"
    weight: float = 0.0

    def __call__(self, group: Group) -> list[float | None]:
        return [episode.paid for episode in group.episodes]
