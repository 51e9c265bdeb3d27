"""A pull towards the reference by the velocity of each denoising step, with one weight at all noise levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.composition import REFERENCE
from gimbal.objectives.base import AbstractObjective
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class VelocityPenalty(AbstractObjective):
    """The squared distance of the policy's velocity from the reference's, at the states of the path (UniGRPO, arXiv:2603.23500).

    loss = coef mean_D (v - v_ref)^2, v = eps - x0 as the network finds them in a state.

    - policy = reference: value 0 and gradient 0.
    - flow_sde at time t, in steps of dt, with log-probabilities that are means over D: StepKL / coef is
      (dt / 2) (g (1 - t) / (2 t) + 1 / g)^2 times it. That factor differs between noise levels; here all of them weigh 1.
    - ``coef`` = 0: nothing.

    Published: 1.5e-5 at 1024 pixels. Metric: ``kl/velocity``, without ``coef``.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"velocity_NSD", "reference/velocity_NSD"})

    coef: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.coef < 1e6:
            raise ValueError(f"VelocityPenalty.coef is {self.coef}; it must be a number from 0, below a million")

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        apart_NSD = batch.column("velocity_NSD", self) - batch.column("reference/velocity_NSD", self)
        apart_NS = apart_NSD.square().mean(-1)
        return Terms(self.coef * apart_NS, {"kl/velocity": apart_NS.detach()})

    def effects(self) -> frozenset[str]:
        return frozenset({REFERENCE})
