"""In which directions of what it observes a policy by values changes its mind, and how far away that is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

STEPS = 200  # of the way to ``most``, at which decisions are compared


@dataclass(frozen=True, kw_only=True)
class Unstable:
    """What ``UnstableDirections`` found. Distances are in units of each observed number's spread.

    ``strength_O`` are the eigenvalues of the margin's mean squared gradient, the largest first, and the rows of ``direction_OO`` their
    directions. ``cost`` is the median distance at which a decision flips along the first, either way, and ``random_cost`` along a
    random direction; infinite where more than half do not flip within ``most``.
    """

    strength_O: Float[Tensor, " O"]
    direction_OO: Float[Tensor, "O O"]
    cost: float
    random_cost: float


@dataclass(frozen=True, kw_only=True)
class UnstableDirections:
    """Directions that are shared by many states and along which decisions flip early (after arXiv:2406.16979).

    With m(s) = max_a Q(s, a) - the second largest, z = s / spread of s over the states, and g = dm / dz:

        G = mean over states of g g^T,   its eigenvectors are the directions, its eigenvalues their strength

    - values that are linear in s, of two choices: one direction, w_1 - w_2, and no strength in any other.
    - values that do not depend on s: no strength, and nothing flips.

    ``most``: the distance up to which flips are looked for; ``random``: how many random directions are tried.

    Confidence: abstract only; of the paper's diagnostics it is the correlated directions and what it takes to flip a decision; how they
    move over time and under a shift of states is left out, and so is the second order.
    """

    most: float = 4.0
    random: int = 8

    def __post_init__(self) -> None:
        if not 0 < self.most < math.inf or self.random < 1:
            raise ValueError(
                f"UnstableDirections has most {self.most} (a distance above 0) and random {self.random} (directions, at least 1)"
            )

    def __call__(
        self,
        values: Callable[[Float[Tensor, "K O"]], Float[Tensor, "K V"]],
        observation_KO: Float[Tensor, "K O"],
        generator: np.random.Generator,
    ) -> Unstable:
        """``values`` of choices, as ``GreedyPolicy.values`` and ``LeastValuePolicy.values`` give them, in states that were visited."""
        if len(observation_KO) < 2:
            raise ValueError(f"a spread needs at least 2 observations, got {len(observation_KO)}: play some episodes")
        spread_O = observation_KO.std(0)
        seen_KO = observation_KO.clone().requires_grad_(True)
        top_K2 = values(seen_KO).topk(2, dim=-1).values
        (gradient_KO,) = torch.autograd.grad((top_K2[:, 0] - top_K2[:, 1]).sum(), seen_KO)
        scaled_KO = (gradient_KO * spread_O).double()
        found = torch.linalg.eigh(scaled_KO.T @ scaled_KO / len(scaled_KO))
        strength_O, direction_OO = found.eigenvalues.flip(0), found.eigenvectors.T.flip(0)
        drawn_RO = torch.from_numpy(generator.standard_normal((self.random, len(spread_O))))
        random = [self._cost(values, observation_KO, spread_O * row_O / row_O.norm()) for row_O in drawn_RO]
        return Unstable(
            strength_O=strength_O.clamp(min=0).float(),
            direction_OO=direction_OO.float(),
            cost=float(self._cost(values, observation_KO, spread_O * direction_OO[0]).median()),
            random_cost=float(torch.cat(random).median()),
        )

    @torch.no_grad()
    def _cost(
        self,
        values: Callable[[Float[Tensor, "K O"]], Float[Tensor, "K V"]],
        observation_KO: Float[Tensor, "K O"],
        along_O: Float[Tensor, " O"],
    ) -> Float[Tensor, " K"]:
        """How far each state has to be moved, one way or the other, until another choice is the best."""
        best_K = values(observation_KO).argmax(-1)
        cost_K = torch.full((len(observation_KO),), math.inf)
        for step in range(STEPS, 0, -1):
            far = self.most * step / STEPS
            for sign in (1, -1):
                moved_KO = observation_KO + (sign * far * along_O).to(observation_KO.dtype)
                cost_K = torch.where(values(moved_KO).argmax(-1) != best_K, far, cost_K)
        return cost_K
