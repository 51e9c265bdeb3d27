"""Several horizons at once, weighted by the critic's accuracy on each: a negative control."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.ops.discounted import generalised_advantages
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class HorizonRouted(AbstractAdvantage):
    """GAE for several discounts, weighted by the critic's error: the negative control of Target Decoupling (arXiv:2604.13517).

    A = sum_h w_h A_h,  w = softmax_h(-|V_h - G_h| / temperature),  G_h = A_h + V_h; so the shortest horizon, which is easiest
    to predict, gets the most weight, and the actor becomes short-sighted. Take GAE with the longest discount instead.

    - one discount: GAE.
    - ``temperature`` = inf: the mean over horizons; 0: the horizon with the smallest error.

    ``route/shortest`` is the mean weight of the first discount. Train the critic by MultiHorizonValueLoss with the same ``gammas``.

    Published: ``gammas`` .5, .9, .99, .999; ours has two of them.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "value_NSM"})

    gammas: tuple[float, ...] = (0.9, 0.999)
    lam: float = 0.95
    temperature: float = 10.0

    def __post_init__(self) -> None:
        if not self.gammas or not all(0 <= x <= 1 for x in (*self.gammas, self.lam)) or self.temperature < 0:
            raise ValueError(
                f"HorizonRouted has gammas {self.gammas} and lam {self.lam}, in [0, 1], and temperature {self.temperature}, 0 or above"
            )

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        advantage_NSM = self._advantages(batch)
        return (self._weights(advantage_NSM) * advantage_NSM).sum(-1)

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        first_NS = self._weights(self._advantages(batch))[..., 0]
        return {"route/shortest": float(ops.masked_mean(first_NS, batch.mask_NS))}

    def _weights(self, advantage_NSM: Float[Tensor, "N S M"]) -> Float[Tensor, "N S M"]:
        error_NSM = advantage_NSM.abs()
        if self.temperature == 0:
            return torch.nn.functional.one_hot(error_NSM.argmin(-1), len(self.gammas)).to(error_NSM.dtype)
        return torch.softmax(-error_NSM / self.temperature, -1)

    def _advantages(self, batch: TrainBatch) -> Float[Tensor, "N S M"]:
        reward_NS, value_NSM = batch.column("reward_NS", self), batch.column("value_NSM", self)
        if value_NSM.shape[-1] != len(self.gammas):
            raise ValueError(
                f"HorizonRouted has {len(self.gammas)} discounts and the critic {value_NSM.shape[-1]} values: "
                f"set critic.heads={len(self.gammas)}"
            )
        found = []
        for h, gamma in enumerate(self.gammas):
            value_NS = value_NSM[..., h]
            final_N = batch.facts.get(f"bootstrap/{h}", value_NS.new_zeros(value_NS.shape[0]))
            found.append(generalised_advantages(reward_NS, value_NS, final_N, batch.mask_NS, gamma, self.lam))
        return torch.stack(found, -1)
