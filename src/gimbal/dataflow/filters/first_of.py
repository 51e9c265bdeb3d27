"""Trains on fewer rollouts than vote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gimbal.composition import Advice, Composition, Refusal, Verdict
from gimbal.dataflow.base import AbstractFilter
from gimbal.dataflow.budgets.fixed import Fixed
from gimbal.records import Drop, Group


@dataclass(frozen=True, kw_only=True)
class FirstOf(AbstractFilter):
    """The first ``count`` rollouts of a group train, the others have only been scored with them (TTRL, arXiv:2504.16084).

    "First" is by sample number, not by speed, so nothing is selected. Advantages are computed among those that stay.
    ``drops/rollouts/FirstOf`` counts the others.

    - ``count`` at least the group's size: the group unchanged.

    Published: 32 of 64.

    Confidence: verified.
    """

    count: int = 8

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"FirstOf.count is {self.count}; it counts rollouts that train, at least 1")

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        size, fewest = whole.run.num_generations, whole.run.learns.fewest()
        if self.count < fewest:
            yield Refusal(
                f"FirstOf leaves {self.count} rollout of each group, and the advantage compares at least {fewest}: each would be "
                f"dropped; FirstOf(count={max(fewest, size // 2)})"
            )
        elif self.count >= size and isinstance(whole.run.budget, Fixed):
            yield Advice(
                f"FirstOf keeps {self.count} rollouts of a group, and num_generations is {size}, so it drops none: "
                f"num_generations={2 * self.count}, or FirstOf(count={max(fewest, size // 2)})"
            )

    def __call__(self, group: Group) -> Group | Drop:
        first = sorted(episode.sample for episode in group.episodes)[: self.count]
        return replace(group, episodes=tuple(e for e in group.episodes if e.sample in first))
