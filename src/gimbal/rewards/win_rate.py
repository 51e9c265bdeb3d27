"""Compares the rollouts of a group in pairs; each scores the share of comparisons it wins."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from gimbal.composition import AbstractPart
from gimbal.records import Group
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.rewards.scoring import NoVerdict


class AbstractPreference(AbstractPart, ABC):
    """Group -> P(rollout i beats rollout j) in [0, 1] for every pair, [i][j] and [j][i] summing to 1; None: not compared.

    A frozen dataclass, saved with the recipe. It need not derive from a score, nor be transitive: it may come from a person, a judge or
    a game.
    """

    @abstractmethod
    def __call__(self, group: Group) -> list[list[float | None]]: ...

    def open(self) -> AbstractPreference:
        return self

    def close(self) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class ByRewards(AbstractPreference):
    """Each reward prefers the higher of its scores (a tie is 1/2), with its weight as its number of votes.

    P is the share of the votes; with ``majority`` 1 above half of them, 1/2 at half and 0 below. ``temperature`` above 0 makes a
    vote sigmoid(difference / temperature), as in the Bradley-Terry model. A reward that does not apply to both abstains; if all do, the
    pair is not compared.

    - one reward, ``temperature`` 0: the order of its scores.
    - ``majority`` over three or more may be cyclic (Condorcet); shares cannot, as each is a sum of orders.
    """

    rewards: tuple[AbstractReward, ...] = (ReasoningScore(),)
    temperature: float = 0.0
    majority: bool = True

    def __post_init__(self) -> None:
        if not self.rewards or self.temperature < 0 or min(reward.weight for reward in self.rewards) <= 0:
            raise ValueError("ByRewards needs at least one reward, weights above 0, and a temperature of 0 or above")

    def open(self) -> ByRewards:
        return replace(self, rewards=tuple(reward.open() for reward in self.rewards))

    def close(self) -> None:
        for reward in self.rewards:
            reward.close()

    def __call__(self, group: Group) -> list[list[float | None]]:
        columns = [reward(group) for reward in self.rewards]
        size = range(len(group.rollouts))
        return [[self._share([(c[i], c[j]) for c in columns]) for j in size] for i in size]

    def _share(self, pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
        votes = total = 0.0
        for reward, (own, other) in zip(self.rewards, pairs, strict=True):
            if own is None or other is None or not math.isfinite(own - other):
                continue
            votes += reward.weight * self._vote(own - other)
            total += reward.weight
        if not total:
            return None
        return _step(2 * votes - total) if self.majority else votes / total

    def _vote(self, difference: float) -> float:
        return (1 + math.tanh(difference / self.temperature / 2)) / 2 if self.temperature else _step(difference)


def _step(x: float) -> float:
    return 0.5 if abs(x) < 1e-9 else float(x > 0)


@dataclass(frozen=True, kw_only=True)
class WinRate(AbstractReward):
    """The probability of beating another rollout of the group: self-play (SPO, arXiv:2401.04056).

    R_i = mean over j != i of P(i beats j). Maximising it plays a symmetric zero-sum game against oneself, whose solution is the minimax
    winner: it exists even if preferences are cyclic and no score can express them. (The mean of the iterates converges to it; the last
    iterate may cycle.)

    - a preference by one noiseless score: the rank in the group, scaled to [0, 1].
    - groups of two: 0, 1/2 or 1.
    - the mean over a group is 1/2.
    - a rollout that is compared with no other: not applicable.

    Published: opponents are rollouts of one task, or the last few of a queue; here, those of the group.

    Confidence: partial; ours: the choice of opponents, and ByRewards.
    """

    by_group: ClassVar[bool] = True
    is_method: ClassVar[bool] = True

    preference: AbstractPreference = ByRewards()
    name: str = "win_rate"

    def open(self) -> WinRate:
        return replace(self, preference=self.preference.open())

    def close(self) -> None:
        self.preference.close()

    def __call__(self, group: Group) -> list[float | None]:
        wins = self.preference(group)
        rates: list[float | None] = []
        for i, row in enumerate(wins):
            met = [p for j, p in enumerate(row) if j != i and p is not None]
            failed = [p for p in met if isinstance(p, NoVerdict)]
            rates.append(failed[0] if failed else sum(met) / len(met) if met else None)
        return rates
