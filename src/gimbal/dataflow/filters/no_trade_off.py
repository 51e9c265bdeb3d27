"""Drops groups that do not differ in a second reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gimbal.dataflow.base import AbstractFilter
from gimbal.records import Drop, Group


@dataclass(frozen=True, kw_only=True)
class NoTradeOff(AbstractFilter):
    """Drops groups without a success, or whose rollouts differ by less than ``least`` in the reward ``name`` (LightningRL,
    arXiv:2603.13319).

    A success is a score of the reward ``right`` above ``threshold``. Published: ``least`` 0.01, of tokens a forward pass.
    """

    names_rewards: ClassVar[tuple[str, ...]] = (
        "right",
        "name",
    )

    right: str
    name: str
    least: float = 0.01
    threshold: float = 0.5

    def __call__(self, group: Group) -> Group | Drop:
        missing = {self.right, self.name} - set(group.rollouts[0].scores)
        if missing:
            raise ValueError(
                f"NoTradeOff reads the rewards {sorted(missing)}, which this run does not have: name its own"
            )
        if max(rollout.scores[self.right] for rollout in group.rollouts) <= self.threshold:
            return Drop("no_success")
        values = [rollout.scores[self.name] for rollout in group.rollouts]
        return Drop("no_trade_off") if max(values) - min(values) < self.least else group
