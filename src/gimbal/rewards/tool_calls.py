"""How often an episode's environment was called."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from gimbal.composition import OBSERVES, Advice, Composition, Verdict
from gimbal.records import Episode, Group
from gimbal.rewards.base import AbstractReward


@dataclass(frozen=True, kw_only=True)
class ToolCalls(AbstractReward):
    """A measure of the calls that an episode made, failed ones included; with weight 0 it is only recorded.

    ``measure``, with T the number of calls:
    - "count": T.
    - "economy": 1 / (1 + T) (HDPO, arXiv:2604.08545).
    - "spared": max(0, 1 - T / ``most``), the share of calls that a plan saves (AI-SearchPlanner, arXiv:2508.20368, in our reading).

    - no call: 0, 1 and 1.
    """

    is_method: ClassVar[bool] = True

    measure: Literal["count", "economy", "spared"] = "count"
    most: int = 8
    name: str = "calls"
    weight: float = 0.0

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ValueError(f"ToolCalls.most is {self.most}; it must be a number of calls, at least 1")

    @property
    def decides(self) -> bool:
        return False

    def __call__(self, group: Group) -> list[float | None]:
        return [self._measured(episode) for episode in group.episodes]

    def _measured(self, episode: Episode) -> float:
        calls = sum(act.calls for act in episode.acts or ())
        match self.measure:
            case "count":
                return float(calls)
            case "economy":
                return 1 / (1 + calls)
            case "spared":
                return max(0.0, 1 - calls / self.most)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.doing(OBSERVES):
            yield Advice("ToolCalls counts calls, and nothing answers any in this run: set workflow=Dialogue()")
