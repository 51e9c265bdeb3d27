"""Critics of several values: heads of one network, or separate networks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.advantages.estimators.gae import GAE
from gimbal.advantages.estimators.horizon_routed import HorizonRouted
from gimbal.composition import DISAGREES, Advice, Composition, Refusal, Verdict
from gimbal.critics.base import AbstractCritic, AbstractCriticSpec
from gimbal.objectives.values.member_value_loss import MultiHorizonValueLoss
from gimbal.ops import stable_hash
from gimbal.records import AbstractDecisions


class AbstractMembers(AbstractCritic):
    """M values of each state. ``combine`` makes the one used for advantages; by default the last."""

    @abstractmethod
    def members(
        self, decisions: AbstractDecisions, hidden_NSH: Float[Tensor, "N S H"] | None = None
    ) -> tuple[Float[Tensor, "N S M"], Float[Tensor, "N M"]]: ...

    def value(
        self, decisions: AbstractDecisions, hidden_NSH: Float[Tensor, "N S H"] | None = None
    ) -> tuple[Float[Tensor, "N S"], Float[Tensor, " N"]]:
        value_NSM, final_NM = self.members(decisions, hidden_NSH)
        return self.combine(value_NSM), self.combine(final_NM)


def horizons(heads: int, whole: Composition) -> Iterator[Verdict]:
    """What the heads of a critic ask of their readers; a rule of this room, since losses and estimators cannot import each other."""
    losses = whole.all(MultiHorizonValueLoss)
    if any(len(part.gammas) != heads for part in (*losses, *whole.all(HorizonRouted))):
        yield Refusal("each of the gammas is the horizon of a head: set critic.heads to their number")
    if any(loss.gammas[-1] != gae.gamma for loss in losses for gae in whole.all(GAE)):
        yield Advice("GAE.gamma is not the last of the value loss's gammas, whose head it reads")


def soft_minimum(value_M: Float[Tensor, "*shape M"], temperature: float) -> Float[Tensor, "*shape"]:
    """-a (logsumexp(-v / a) - log M): the mean for a = inf, the minimum for a = 0, and v itself where all are v."""
    if temperature == 0:
        return value_M.amin(-1)
    if temperature == float("inf"):
        return value_M.mean(-1)
    least = value_M.amin(-1, keepdim=True).detach()
    # exp and log of differences from the least: nothing overflows, and equal values give exactly 0 here.
    return least[..., 0] - temperature * torch.exp((least - value_M) / temperature).mean(-1).log()


class EnsembleNetwork(AbstractMembers):
    """Several critics on the same states."""

    def __init__(self, critics: list[AbstractCritic], temperature: float) -> None:
        super().__init__()
        self.critics = nn.ModuleList(critics)
        self.temperature = temperature
        self.reads = frozenset().union(*(critic.reads for critic in critics))  # type: ignore[misc]

    def members(
        self, decisions: AbstractDecisions, hidden_NSH: Float[Tensor, "N S H"] | None = None
    ) -> tuple[Float[Tensor, "N S M"], Float[Tensor, "N M"]]:
        found = [critic.value(decisions, hidden_NSH) for critic in self.critics]  # type: ignore[operator]
        return torch.stack([value_NS for value_NS, _ in found], -1), torch.stack([final_N for _, final_N in found], -1)

    def combine(self, value_M: Float[Tensor, "*shape M"]) -> Float[Tensor, "*shape"]:
        return soft_minimum(value_M, self.temperature)


@dataclass(frozen=True, kw_only=True)
class Ensemble(AbstractCriticSpec):
    """Combines several critics into one value: their mean (ASYPPO, arXiv:2510.01656) or a soft minimum (SAFE, 2026).

    V = -a (logsumexp_m(-V_m / a) - log M),  a = ``temperature``.

    - a = inf: the mean; a = 0: the minimum.
    - equal members, or one: that value.

    ValueLoss trains them as one model, fitting the joint value; EnsembleValueLoss fits each separately.
    """

    critics: tuple[AbstractCriticSpec, ...]
    temperature: float = float("inf")

    def __post_init__(self) -> None:
        if not self.critics:
            raise ValueError("Ensemble has no critics; name them in critics=(..., ...)")
        if self.temperature < 0:
            raise ValueError(f"Ensemble.temperature is {self.temperature}; 0 is the minimum, inf the mean")

    def load(self, seed: int) -> EnsembleNetwork:
        # Separate streams: critics with equal initial weights would agree until their data differ.
        live = [spec.load(stable_hash("member", m, seed)) for m, spec in enumerate(self.critics)]
        return EnsembleNetwork(live, self.temperature).eval()

    def effects(self) -> frozenset[str]:
        return frozenset({DISAGREES})
