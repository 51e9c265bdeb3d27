"""Planners: find the actions with the highest predicted return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import AbstractPart


@dataclass(frozen=True, kw_only=True)
class AbstractPlanner(AbstractPart, ABC):
    """Proposes ``candidates`` sequences of ``horizon`` actions, scores them, and moves the mean to the better ones, ``iterations``
    times:

        a_p = clip(mean + std e_p, -1, 1),   mean <- sum_p w_p a_p,   std^2 <- sum_p w_p (a_p - mean)^2,   mean = 0 and std = 1 at first

    in units of the largest action. Within a sequence each action is held for ``hold`` steps. Only the first action of the final mean is
    played, for one step: the policy plans anew at each step. The e_p are the same in every plan, so a plan is a function of the
    observation.
    """

    horizon: int = 20
    candidates: int = 64
    iterations: int = 3
    hold: int = 1
    least_std: float = 0.05

    def __post_init__(self) -> None:
        for name in ("horizon", "candidates", "iterations", "hold"):
            if vars(self)[name] < 1:
                raise ValueError(f"{type(self).__name__}.{name} is {vars(self)[name]}; it is at least 1")
        if not 0 <= self.least_std <= 1:
            raise ValueError(
                f"{type(self).__name__}.least_std is {self.least_std}; it is a share of the largest action"
            )

    @property
    def knots(self) -> int:
        """Actions that are chosen."""
        return -(-self.horizon // self.hold)

    @abstractmethod
    def weights(self, return_BP: Float[Tensor, "B P"]) -> Float[Tensor, "B P"]:
        """What each candidate counts in the next mean; 1 in all."""

    def __call__(
        self,
        returns: Callable[[Float[Tensor, "B P H A"]], Float[Tensor, "B P"]],
        batch: int,
        noise_IPJA: Float[Tensor, "I P J A"],
    ) -> Float[Tensor, "B A"]:
        """``returns`` predicts the return of action sequences in [-1, 1]; ``noise_IPJA`` are the e, J = ``knots``."""
        mean_BJA = noise_IPJA.new_zeros((batch, *noise_IPJA.shape[2:]))
        std_BJA = torch.ones_like(mean_BJA)
        for noise_PJA in noise_IPJA:
            action_BPJA = (mean_BJA[:, None] + std_BJA[:, None] * noise_PJA).clamp(-1, 1)
            weight_BP = self.weights(returns(action_BPJA.repeat_interleave(self.hold, 2)[:, :, : self.horizon]))
            mean_BJA = torch.einsum("bp,bpja->bja", weight_BP, action_BPJA)
            apart_BPJA = (action_BPJA - mean_BJA[:, None]).square()
            std_BJA = torch.einsum("bp,bpja->bja", weight_BP, apart_BPJA).sqrt().clamp(min=self.least_std)
        return mean_BJA[:, 0]


@dataclass(frozen=True, kw_only=True)
class CEM(AbstractPlanner):
    """w_p = 1 / ``elites`` of the best candidates, 0 of the others (cross-entropy method, Rubinstein 1999).

    - ``elites`` = ``candidates``: no selection, the mean of the proposals.
    """

    elites: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.elites <= self.candidates:
            raise ValueError(f"CEM.elites is {self.elites}; it is from 1 to candidates, {self.candidates}")

    def weights(self, return_BP: Float[Tensor, "B P"]) -> Float[Tensor, "B P"]:
        best_BE = return_BP.topk(self.elites, dim=-1).indices
        return torch.zeros_like(return_BP).scatter(-1, best_BE, 1 / self.elites)


@dataclass(frozen=True, kw_only=True)
class MPPI(AbstractPlanner):
    """w_p = softmax_p(R_p / (``temperature`` std(R))) (model-predictive path integral control, arXiv:1707.02342).

    A smooth function of the returns, so ties do not flip it. The published temperature is in units of the return; ours is in units of
    its spread over the candidates, so one number fits all rewards.

    - ``temperature`` towards 0: the best candidate; towards infinity: the mean of the proposals.
    """

    temperature: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.temperature > 0:
            raise ValueError(f"MPPI.temperature is {self.temperature}; it is above 0")

    def weights(self, return_BP: Float[Tensor, "B P"]) -> Float[Tensor, "B P"]:
        spread_B1 = return_BP.std(-1, keepdim=True, unbiased=False)
        return ((return_BP - return_BP.amax(-1, keepdim=True)) / (self.temperature * spread_B1 + 1e-8)).softmax(-1)
