"""Advantage estimators, advantage shapings and reward shapings.

Fixed order: reward shapings (they write ``reward_NS``) -> the estimator (``advantage_NS``) -> advantage shapings (they read and
return ``advantage_NS``). All see the global batch, before minibatches. Nothing here carries gradient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import AbstractPart
from gimbal.config.own import shaped
from gimbal.ops import last_row_of_episode
from gimbal.records import TrainBatch


class AbstractAdvantage(AbstractPart, ABC):
    """batch -> advantage_NS. An estimator reads rewards, groups and values; a shaping also reads ``advantage_NS``.

    Every estimator gives 0, never NaN, for a group of one and for equal rewards (unless its docstring says otherwise).
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    per_episode: ClassVar[bool] = False  # all decisions of an episode get one number, found by what it earned in all

    def of_rows(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        """The advantages of a batch whose episodes may have several rows; with one row each it is the call itself.

        A ``per_episode`` part sees one row of each, so that statistics count episodes, and its result applies to all rows.
        """
        if not (self.per_episode and batch.several):
            return shaped(self, self(batch), batch.mask_NS)
        row_E, place_N = last_row_of_episode(batch.mask_NS, batch.episode_N).unique(return_inverse=True)
        one = batch.select(row_E)
        advantage_E = self(one)[torch.arange(len(row_E)), one.mask_NS.int().argmax(-1)]
        return advantage_E[place_N][:, None] * batch.mask_NS

    @property
    def fewest(self) -> int:
        """The fewest episodes of a group that it can compare; smaller groups are dropped."""
        return 2 if "group_N" in self.needs else 1

    @abstractmethod
    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]: ...

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        """Metrics of its effect on the batch it was called with, for controllers."""
        return {}


class AbstractRewardShaping(AbstractPart, ABC):
    """batch -> reward_NS: changes the rewards before any baseline (so the group's statistics include it)."""

    needs: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]: ...

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        """Metrics of its effect on the batch it was called with, for controllers."""
        return {}
