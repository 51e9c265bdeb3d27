"""Judges that are shown two finished samples of one task and say which is better."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal.records import Group
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.samples import NO_LABEL, finished


@dataclass(frozen=True, kw_only=True)
class AskedSamples:
    """What the samples of N rows were asked for: a class, or NO_LABEL; and what their task showed, flat, where it shows something."""

    label_N: Int[Tensor, " N"]
    given_ND: Float[Tensor, "N D"] | None = None

    def repeat(self, times: int) -> AskedSamples:
        """Once more after each other."""
        given_ND = self.given_ND
        return AskedSamples(
            label_N=self.label_N.repeat(times), given_ND=None if given_ND is None else given_ND.repeat(times, 1)
        )


@dataclass(frozen=True, kw_only=True)
class AbstractPairJudge(AbstractReward, ABC):
    """A judge of pairs: ``beats`` is P(the sample is better than its rival) in each criterion of its task, in torch.

    The score of a sample is the mean over its criteria of min(P, ``limit``), and over its rivals. In a group these are the others
    of the group. An update that follows the gradient (RewardGradient) draws a rival for each sample from the model that the run
    began with.

    - a sample against itself: P = 1/2.
    - ``limit`` below every P: no gradient.
    """

    by_group: ClassVar[bool] = True
    is_method: ClassVar[bool] = True

    limit: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.limit <= 1:
            raise ValueError(f"{type(self).__name__}.limit is {self.limit}; it must be above 0 and at most 1 (none)")

    @abstractmethod
    def beats(
        self, x_ND: Float[Tensor, "N D"], rival_ND: Float[Tensor, "N D"], asked: AskedSamples
    ) -> Float[Tensor, "N E"]:
        """P for each criterion; NaN in those that are not of the row's task."""

    def gain(
        self, x_ND: Float[Tensor, "N D"], rival_ND: Float[Tensor, "N D"], asked: AskedSamples
    ) -> Float[Tensor, " N"]:
        """The score of each sample against its rival."""
        beats_NE = self.beats(x_ND, rival_ND, asked)
        there_NE = ~beats_NE.isnan()
        return beats_NE.clamp(max=self.limit).where(there_NE, 0).sum(-1) / there_NE.sum(-1).clamp(min=1)

    def __call__(self, group: Group) -> list[float | None]:
        x_ND = finished(group.rollouts)
        count, columns = len(x_ND), group.task.columns
        if count < 2:
            return [None] * count
        shown: Sequence[float] | None = columns.get("given")
        given_ND = None if shown is None else torch.tensor([shown] * count, dtype=torch.float32)
        asked = AskedSamples(label_N=torch.full((count,), int(columns.get("label", NO_LABEL))), given_ND=given_ND)
        with torch.no_grad():
            met = [self.gain(x_ND, x_ND.roll(apart, 0), asked) for apart in range(1, count)]
        return torch.stack(met).mean(0).tolist()
