"""Mean 0 and scale 1 over the whole batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.composition import Composition, Refusal, Verdict
from gimbal.ops.levels import Level, first_of_turn
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class Whitened(AbstractAdvantage):
    """Normalises advantages over the batch (PPO practice; REINFORCE++, arXiv:2501.03262). Must be the first of the shapings.

    A <- (A - mean) / (std + eps) over all counted decisions of the batch. With ``level`` "turn" or "sequence" the statistics are over
    the mean advantages of turns or rollouts, each counted once regardless of length (VL-DAC, arXiv:2508.04280).

    - equal advantages everywhere: 0.
    - ``level`` "turn" and turns of equal length, each of one advantage: ``level`` "token".
    - ReturnToGo before it: REINFORCE++; GroupCentered before it: REINFORCE++-baseline.
    - GroupCentered before it, one group in the batch, equal lengths: GroupNormalized (ddof 0).

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS"})

    eps: float = 1e-8
    level: Level = "token"

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        advantage_NS = batch.column("advantage_NS", self)
        # In float64 the mean of equal float32 values is that very value; a rounding error would be divided by itself.
        exact_NS = advantage_NS.double()
        unit_NS, one_NS = exact_NS, batch.mask_NS
        if self.level != "token":
            turn_NS = batch.turns_NS if self.level == "turn" else torch.zeros_like(batch.turns_NS)
            unit_NS = ops.pooled(exact_NS, batch.mask_NS, self.level, turn_NS)
            one_NS = first_of_turn(turn_NS, batch.mask_NS)
        centred_NS = exact_NS - ops.masked_mean(unit_NS, one_NS)
        scale = ops.masked_std(unit_NS, one_NS) + self.eps
        return (centred_NS / scale).where(batch.mask_NS & (scale > 0), 0).to(advantage_NS.dtype)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        shapes = [part for part in whole.all(AbstractAdvantage) if "advantage_NS" in part.needs]
        if any(isinstance(shape, Whitened) for shape in shapes[1:]):
            yield Refusal("Whitened after another shaping would undo its signs: put Whitened first in shaping")
