"""Propose, score, pick: which of several proposed actions is played."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal.composition import AbstractPart


@dataclass(frozen=True, kw_only=True)
class AbstractPick(AbstractPart, ABC):
    """Draws one of P proposals in proportion to a weight, by their scores; one uniform number each decides, so a draw is a function
    of its arguments. Scores may be of any origin; ``reads_value`` says whether they are compared with a value of the state.
    """

    reads_value: ClassVar[bool] = False

    @abstractmethod
    def weights(self, score_KP: Float[Tensor, "K P"], value_K: Float[Tensor, " K"]) -> Float[Tensor, "K P"]:
        """What each proposal counts, 0 or above; not all are 0."""

    def __call__(
        self, score_KP: Float[Tensor, "K P"], value_K: Float[Tensor, " K"], uniform_K: Float[Tensor, " K"]
    ) -> Int[Tensor, " K"]:
        sum_KP = self.weights(score_KP, value_K).cumsum(-1)
        # The first whose sum is above: one of weight 0 never is. A uniform number that rounds to 1 takes the last that counts.
        above_KP = sum_KP > (uniform_K * sum_KP[:, -1])[:, None]
        return torch.where(above_KP.any(-1), above_KP.int().argmax(-1), sum_KP.argmax(-1))


@dataclass(frozen=True, kw_only=True)
class Best(AbstractPick):
    """The proposal of the largest score, the first of equals.

    - One proposal: that one, whatever its score.
    """

    def weights(self, score_KP: Float[Tensor, "K P"], value_K: Float[Tensor, " K"]) -> Float[Tensor, "K P"]:
        return torch.zeros_like(score_KP).scatter(-1, score_KP.argmax(-1, keepdim=True), 1.0)


@dataclass(frozen=True, kw_only=True)
class ByExpectile(AbstractPick):
    """Draws a proposal by the expectile's weights: those above the value of the state are likelier (IDQL, arXiv:2304.10573).

        w_p = |expectile - [Q(o, a_p) <= V(o)]|

    Where V is that expectile of Q over the proposals, it is also the mean of Q under the policy that plays them in proportion to w.

    - ``expectile`` = 1/2: any proposal as likely as any other.
    - All proposals on one side of V: any as likely as any other.

    Confidence: verified (the authors' code).
    """

    reads_value: ClassVar[bool] = True

    expectile: float = 0.7

    def __post_init__(self) -> None:
        if not 0 < self.expectile < 1:
            raise ValueError(f"ByExpectile.expectile is {self.expectile}; it is between 0 and 1")

    def weights(self, score_KP: Float[Tensor, "K P"], value_K: Float[Tensor, " K"]) -> Float[Tensor, "K P"]:
        return torch.where(score_KP > value_K[:, None], self.expectile, 1 - self.expectile)
