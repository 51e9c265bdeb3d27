"""What an advantage estimator, a shaping of advantages and a shaping of rewards are.

Order, fixed: reward shapings (they write ``reward_NS``) -> the estimator (``advantage_NS``) -> advantage shapings (they read and
return ``advantage_NS``). All see the global batch, before minibatches. Nothing here carries gradient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.composition import AbstractPart
from gimbal.records import TrainBatch


class AbstractAdvantage(AbstractPart, ABC):
    """batch -> advantage_NS. As an estimator it reads rewards, groups and values; as a shaping also ``advantage_NS``.

    Defined for all: a group of one and a group of equal rewards give 0 (unless the docstring says otherwise), never NaN.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    @property
    def fewest(self) -> int:
        """Episodes of a group without which it compares nothing: a group that the sampler left fewer is dropped."""
        return 2 if "group_N" in self.needs else 1

    @abstractmethod
    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]: ...

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        """Metrics of what it did, of the batch it was called with: what a controller can steer it by."""
        return {}


class AbstractRewardShaping(AbstractPart, ABC):
    """batch -> reward_NS: a change of the rewards before any baseline is taken (so it enters the group's statistics)."""

    needs: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]: ...

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        """Metrics of what it did, of the batch it was called with: what a controller can steer it by."""
        return {}
