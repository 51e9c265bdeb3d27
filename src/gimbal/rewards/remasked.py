"""How many cells of a masked text its reviews masked again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from gimbal.records import Group
from gimbal.rewards.base import AbstractReward


@runtime_checkable
class _Reviewed(Protocol):
    """What a rollout's decisions must hold: the cells that were masked again."""

    remasked_N: Tensor


@dataclass(frozen=True, kw_only=True)
class Remasked(AbstractReward):
    """Cells of the text that reviews masked again or wrote anew, each as often as they did: for policies that fill in masked text
    (MaskedLM) and read it again (MaskedSampling(reviews=...)).

    Weight 0, the default, only reports it; a negative weight is the price of a cell. 0 where there are no reviews.
    """

    name: str = "remasked"
    weight: float = 0.0

    @property
    def decides(self) -> bool:
        return False

    def __call__(self, group: Group) -> list[float | None]:
        return [self._of(rollout.decisions) for rollout in group.rollouts]

    def _of(self, decisions: object) -> float:
        if not isinstance(decisions, _Reviewed):
            raise ValueError(
                f"Remasked counts the cells that policies mask again which fill in masked text (policy=MaskedLM()), and "
                f"{type(decisions).__name__} has none: take it out of rewards"
            )
        return float(decisions.remasked_N.sum())
