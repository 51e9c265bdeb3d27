"""Advantages from a critic, and returns without one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractAdvantage
from gimbal.ops.discounted import discounted_sums, generalised_advantages
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class GAE(AbstractAdvantage):
    """Generalised advantage estimation (arXiv:1506.02438).

    delta_t = r_t + gamma V_{t+1} - V_t;  A_t = sum_l (gamma lam)^l delta_{t+l}, over the counted decisions of an episode. After the
    last one V is ``bootstrap_N``: 0 where the episode terminated, the critic's estimate where it was truncated.

    - ``lam`` = 1: discounted return minus V.
    - ``lam`` = 0: the one-step error delta.
    - V = 0 and ``lam`` = 1: ReturnToGo.

    Control: gamma .99, lam .95; tokens: gamma 1, lam .95 to 1.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "value_NS", "bootstrap_N"})

    gamma: float = 0.99
    lam: float = 0.95

    def __post_init__(self) -> None:
        for name, value in (("gamma", self.gamma), ("lam", self.lam)):
            if not 0 <= value <= 1:
                raise ValueError(f"GAE.{name} is {value}; it must be in [0, 1]")

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        reward_NS, value_NS = batch.column("reward_NS", self), batch.column("value_NS", self)
        bootstrap_N = batch.column("bootstrap_N", self)
        return generalised_advantages(reward_NS, value_NS, bootstrap_N, batch.mask_NS, self.gamma, self.lam)


@dataclass(frozen=True, kw_only=True)
class ReturnToGo(AbstractAdvantage):
    """The discounted sum of future rewards (Williams 1992; REINFORCE++, arXiv:2501.03262, with Whitened).

    A_t = sum_{k >= t} gamma^(k-t) r_k over the counted decisions.

    - ``gamma`` = 1 and a reward only at the end: the rollout's reward, at every decision.
    - equal rewards do not give 0: it has no baseline (Whitened adds the batch's mean).

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS"})

    gamma: float = 1.0

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        return discounted_sums(batch.column("reward_NS", self), batch.mask_NS, self.gamma)
