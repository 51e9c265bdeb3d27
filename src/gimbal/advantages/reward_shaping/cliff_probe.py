"""How much depends on a small reward: unchanged rewards, and a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractRewardShaping
from gimbal.ops.stability import gaps, policy_of, total_variation
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class CliffProbe(AbstractRewardShaping):
    """Measures how far the optimal behaviour would move without one of the rewards (Policy Cliff, arXiv:2507.20150).

    Each group of rollouts is a choice among them: under returns R the policy softmax(R / alpha), under R' = R - ``weight`` times the
    reward named ``omitted`` another. Reported: ``cliff/tied``, the share of groups whose best two returns under R' are no more than
    ``margin`` apart, so that the omitted reward decides; and ``cliff/moved``, the mean total variation between the two policies,
    which is at most max |R - R'| / (2 alpha). Rewards stay as they are.

    - ``omitted`` = "": R' = R, and only ties are seen.
    - ``alpha`` = 0: all on the first best one, so cliff/moved is the share of groups where the choice changes. Larger is
      smoother; inf: 0.
    - groups of one, or none: not counted, and 0 if none is left.

    Published: the theory; ours: this probe of it, ``alpha`` and ``margin``.

    Confidence: partial; ours: the probe, with bounds derived by us.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "group_N"})
    names_rewards: ClassVar[tuple[str, ...]] = ("omitted",)

    omitted: str = ""
    weight: float = 1.0
    alpha: float = 0.1
    margin: float = 1e-3

    def __post_init__(self) -> None:
        if self.alpha < 0 or self.margin < 0:
            raise ValueError(f"CliffProbe takes alpha and margin of 0 or above, not {self.alpha} and {self.margin}")

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        batch.column("group_N", self)
        return batch.column("reward_NS", self)

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        return_N = batch.column("reward_NS", self).double().sum(-1)
        left_N, group_N, there_N = return_N, batch.column("group_N", self), batch.mask_NS.any(-1)
        if self.omitted:
            left_N = return_N - self.weight * batch.column(f"score/{self.omitted}", self).double()
        # What was added in single precision and taken away again ties but for its last digits.
        return_N, left_N = return_N.round(decimals=6), left_N.round(decimals=6)
        tied, moved = [], []
        for label in torch.unique(group_N[there_N]):
            chosen_N = there_N & (group_N == label)
            if int(chosen_N.sum()) > 1:
                whole_1G, left_1G = return_N[chosen_N][None], left_N[chosen_N][None]
                tied.append(float(gaps(left_1G)[0] <= self.margin))
                policies = policy_of(whole_1G, self.alpha), policy_of(left_1G, self.alpha)
                moved.append(float(total_variation(*policies)[0]))
        count = max(1, len(tied))
        return {"cliff/tied": sum(tied) / count, "cliff/moved": sum(moved) / count}
