"""One reward whose weight a controller can move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractRewardShaping
from gimbal.advantages.components import added_at_end, components
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class AddedReward(AbstractRewardShaping):
    """Adds ``weight`` times the reward ``name`` at the last decision of each row, for mixtures that change during training (SMILES-
    GRPO, arXiv:2601.17687).

    Give the reward itself weight 0: filters, curricula and evaluations then use only the others, and a controller on
    "reward_shaping.0.weight" can fade this one in or out. "" is the sum of all.

    - ``weight`` = 0: the rewards as they are.
    - a constant ``weight``: for the learner, the reward with that weight.
    - the same value for a whole group: no effect on estimators that compare within a group.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS"})

    name: str = ""
    weight: float = 0.0

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        scores = components(batch, (self.name,) if self.name else (), self)
        return added_at_end(batch, self.weight * torch.stack(list(scores.values())).sum(0), self)
