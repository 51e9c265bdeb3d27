"""Each reward is normalised in its group before the rewards are summed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage, AbstractRewardShaping
from gimbal.advantages.components import check_weights, components, weights_of
from gimbal.advantages.shapings.whitened import Whitened
from gimbal.composition import Advice, Composition, Refusal, Verdict
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class RewardDecoupled(AbstractAdvantage):
    """Normalises each reward separately, so that mixtures with the same sum keep different advantages (GDPO, arXiv:2601.05242).

    A_k = (r_k - mean_g r_k) / (std_g r_k + eps); S = sum_k w_k A_k; A = (S - mean S) / (std S + eps) over the rollouts of the
    batch. ``rewards`` are names, () being all; ``weights`` are in the same order, () being 1 each (the rewards' own weights and
    reward shapings are ignored). With ``gate``, the other rewards count 0 where the gate is below ``threshold``.

    - one reward: GroupNormalized, then whitened; with ``whiten`` "off" GroupNormalized exactly.
    - a reward that is equal across a group adds 0 there; a group of one gives 0 before whitening.
    - ``whiten`` "scale" divides only, so that the mean within a group stays 0 where groups differ in size.
    - ``whiten`` "off" with Whitened as a shaping: statistics over decisions, so long rollouts weigh more.
    - ``ddof`` 0 with a speed reward is the decoupled normalisation of LightningRL (arXiv:2603.13319).

    Published: ``eps`` 1e-4, ``whiten`` "full", weights of 1.

    Confidence: partial; ours: one ``gate`` for all other rewards, and whitening by scale only.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"group_N"})
    per_episode: ClassVar[bool] = True
    names_rewards: ClassVar[tuple[str, ...]] = (
        "rewards",
        "gate",
    )

    rewards: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    gate: str = ""
    threshold: float = 1.0
    whiten: Literal["full", "scale", "off"] = "full"
    ddof: int = 1
    eps: float = 1e-4

    def __post_init__(self) -> None:
        check_weights(self, self.rewards, self.weights)
        if self.whiten not in ("full", "scale", "off"):
            raise ValueError(f"RewardDecoupled.whiten is {self.whiten!r}; choose full, scale or off")
        if self.gate and self.rewards and self.gate not in self.rewards:
            raise ValueError(f"RewardDecoupled.gate is {self.gate!r}, which is none of its rewards: add it to rewards")

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        scores = components(batch, self.rewards, self)
        if self.gate:
            open_N = components(batch, (self.gate,), self)[self.gate] >= self.threshold
            scores = {name: x if name == self.gate else x.where(open_N, 0) for name, x in scores.items()}
        group_N = batch.column("group_N", self)
        normal_KN = torch.stack(
            [ops.group_normalised(x, group_N, ddof=self.ddof, eps=self.eps) for x in scores.values()]
        )
        sum_N = weights_of(scores, self.weights) @ normal_KN
        if self.whiten != "off":
            everything_N = torch.zeros_like(group_N)
            centre = "mean" if self.whiten == "full" else "none"
            sum_N = ops.group_normalised(sum_N, everything_N, centre=centre, ddof=self.ddof, eps=self.eps)
        return sum_N.float()[:, None] * batch.mask_NS

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(AbstractRewardShaping):
            yield Refusal(
                "RewardDecoupled reads rewards by name, so what reward_shaping adds to their sum would be lost: drop one of the two"
            )
        if self.whiten != "off" and whole.has(Whitened):
            yield Advice("Whitened after RewardDecoupled scales twice: set advantage.whiten=off, or drop Whitened")
