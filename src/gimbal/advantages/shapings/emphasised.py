"""Tasks that count more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractAdvantage
from gimbal.records import TrainBatch

COLUMN = "emphasis"


@dataclass(frozen=True, kw_only=True)
class Emphasised(AbstractAdvantage):
    """Multiplies the advantages of each rollout by the score ``name``, a weight that comes with its task (Prompt-GDRO,
    arXiv:2601.19280).

    A' = w A. rewards.Expected(column="emphasis", name="emphasis", weight=0.0) gives the column of that name as a score.

    - w = 1: A.
    - w = 0: the task does not train.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS"})
    names_rewards: ClassVar[tuple[str, ...]] = ("name",)

    name: str = COLUMN

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        weight_N = batch.column(f"score/{self.name}", self)
        return weight_N[:, None] * batch.column("advantage_NS", self) * batch.mask_NS
