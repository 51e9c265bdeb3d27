"""How much a problem with few states is worth where its transitions are known up to a distance, exactly."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from gimbal.environments.tabular import Problem

HALVINGS = 200  # of the interval in which the dual variable of a divergence lies, by the golden section


@dataclass(frozen=True, kw_only=True)
class AbstractUncertainty(ABC):
    """A set of distributions around a known one, of each state and action by itself."""

    radius: float

    def __post_init__(self) -> None:
        if not 0 <= self.radius < math.inf:
            raise ValueError(f"{type(self).__name__}.radius is {self.radius}; it is a distance, 0 or above")

    @abstractmethod
    def least(
        self, transition_XS: Float[np.ndarray, "*X S"], value_S: Float[np.ndarray, " S"]
    ) -> Float[np.ndarray, "*X"]:
        """The smallest mean of the values over each set. What a row lacks to a sum of 1 is the end, and worth 0."""


@dataclass(frozen=True, kw_only=True)
class TotalVariation(AbstractUncertainty):
    """q with sum |q - p| / 2 <= ``radius``, on all states (arXiv:2510.14246, with one-hot features).

        inf_q q.V = max_x  p.min(V, x) - radius (x - min V)

    - ``radius`` = 0: p.V. ``radius`` = 1: min V.
    """

    def least(
        self, transition_XS: Float[np.ndarray, "*X S"], value_S: Float[np.ndarray, " S"]
    ) -> Float[np.ndarray, "*X"]:
        # It is concave in x and has its corners at the values.
        dual_XS = transition_XS @ np.minimum(value_S[:, None], value_S) - self.radius * (value_S - value_S.min())
        return np.where(transition_XS.any(-1), dual_XS.max(-1), 0.0)


@dataclass(frozen=True, kw_only=True)
class Divergence(AbstractUncertainty):
    """q with KL(q || p) <= ``radius`` nats, so on the states that p reaches. Of a row that lacks some of its mass, p is what is there,
    scaled to a sum of 1, and the least mean is scaled back.

        inf_q q.V = max_x  - x log p.exp(-V / x) - x radius

    - ``radius`` = 0: p.V. ``radius`` to infinity: the least of the values that p reaches.
    """

    def least(
        self, transition_XS: Float[np.ndarray, "*X S"], value_S: Float[np.ndarray, " S"]
    ) -> Float[np.ndarray, "*X"]:
        spread, mass_X = float(np.ptp(value_S)), transition_XS.sum(-1)
        if self.radius == 0 or spread == 0:
            return np.asarray(transition_XS @ value_S)
        transition_XS = transition_XS / np.where(mass_X > 0, mass_X, 1.0)[..., None]
        lowest_X = np.where(transition_XS > 0, value_S, np.inf).min(-1)
        lowest_X = np.where(np.isfinite(lowest_X), lowest_X, 0.0)
        above_XS = np.where(transition_XS > 0, value_S - lowest_X[..., None], 0.0)

        def dual(log_X: np.ndarray) -> np.ndarray:
            x_X = np.exp(log_X)
            tilted_X = (transition_XS * np.exp(-above_XS / x_X[..., None])).sum(-1)
            return lowest_X - x_X * (np.log(np.where(tilted_X > 0, tilted_X, 1.0)) + self.radius)

        # It is concave in x, so it has one top on any scale of x; x near 0 is the least value itself.
        low_X = np.full(lowest_X.shape, math.log(spread) - 20.0)
        high_X = np.full(lowest_X.shape, math.log(spread) + 20.0)
        share = (math.sqrt(5) - 1) / 2
        for _ in range(HALVINGS):
            one_X, two_X = high_X - share * (high_X - low_X), low_X + share * (high_X - low_X)
            right_X = dual(one_X) < dual(two_X)
            low_X, high_X = np.where(right_X, one_X, low_X), np.where(right_X, high_X, two_X)
        found_X = np.clip(dual((low_X + high_X) / 2), lowest_X, transition_XS @ value_S)
        return np.asarray(mass_X * found_X)


EXACT = TotalVariation(radius=0.0)  # transitions are as they are said to be


def planned(
    problem: Problem,
    uncertainty: AbstractUncertainty = EXACT,
    policy_HSA: Float[np.ndarray, "H S A"] | None = None,
) -> Float[np.ndarray, "H S A"]:
    """Values of actions with h steps taken, against the worst transitions of the set at each step: of a policy, or of the best."""
    horizon, (states, actions) = problem.horizon, problem.reward_SA.shape
    q_HSA, value_S = np.zeros((horizon, states, actions)), np.zeros(states)
    for step in reversed(range(horizon)):
        q_HSA[step] = problem.reward_SA + uncertainty.least(problem.transition_SAS, value_S)
        value_S = q_HSA[step].max(1) if policy_HSA is None else (policy_HSA[step] * q_HSA[step]).sum(1)
    return q_HSA


def worth(problem: Problem, policy_HSA: Float[np.ndarray, "H S A"], uncertainty: AbstractUncertainty = EXACT) -> float:
    """The policy's return from the first state, against the worst transitions."""
    return float((policy_HSA[0] * planned(problem, uncertainty, policy_HSA)[0]).sum(1)[0])


def greedy(q_HSA: Float[np.ndarray, "H S A"]) -> Float[np.ndarray, "H S A"]:
    """The policy that takes the best action; the first of equals."""
    return np.eye(q_HSA.shape[-1])[q_HSA.argmax(-1)]
