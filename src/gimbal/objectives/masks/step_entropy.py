"""Steps that the policy was sure of do not train."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor

from gimbal.objectives.base import AbstractMask
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class StepEntropy(AbstractMask):
    """Trains only the steps with the highest entropy (DART, arXiv:2509.23866).

    H_s = mean entropy over the counted decisions of step s, a turn of a rollout; of the K steps of a minibatch the ceil(``keep`` K)
    with the highest H_s are kept, plus ties with the last. All others stay as context and, unless ``renormalise``, in the denominators.
    Entropies use the policy at the start of the update. ``mask/StepEntropy`` is the share of decisions kept. Steps come from an
    environment's turns or filters.StepTurns; otherwise a rollout is one step.

    - ``keep`` = 1, or all entropies equal: everything is kept.
    - ``keep`` = 0: nothing is.

    Published: 0.8, from memory; the released code contains the filter but switches it off.

    Confidence: partial.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"entropy_NS"})

    keep: float = 0.8

    def __post_init__(self) -> None:
        if not 0 <= self.keep <= 1:
            raise ValueError(f"StepEntropy.keep is {self.keep}; it is a share of the steps, 0 (none) to 1")

    def __call__(self, batch: TrainBatch) -> Bool[Tensor, "N S"]:
        entropy_NS = batch.column("entropy_NS", self).detach().double()
        turn_NS = batch.turns_NS - int(batch.turns_NS.min())
        width = int(turn_NS.max()) + 1
        count_NT = torch.zeros(batch.shape[0], width, device=turn_NS.device, dtype=torch.double)
        sum_NT = count_NT.scatter_add(1, turn_NS, entropy_NS.where(batch.mask_NS, 0))
        count_NT = count_NT.scatter_add(1, turn_NS, batch.mask_NS.double())
        mean_NT = sum_NT / count_NT.clamp(min=1)
        found_K = mean_NT[count_NT > 0].sort(descending=True).values
        number = math.ceil(self.keep * len(found_K) - 1e-9)
        if number == 0:
            return torch.zeros_like(batch.mask_NS)
        # Rounding in a mean must not part what ties.
        return batch.mask_NS & (mean_NT >= found_K[number - 1] - 1e-12).gather(1, turn_NS)
