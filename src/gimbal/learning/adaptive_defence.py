"""Against an attacker that is not known: a few policies, each the answer to an attack, and a bandit that picks among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Float, Int

Solution = TypeVar("Solution")


@dataclass(frozen=True, kw_only=True)
class Defended(Generic[Solution]):
    """What ``Defenders`` found: the attack that each member answers, its policy, its return under every attack, the largest gap that
    the first member left, the first two, and so on, and whether the last of these was within the tolerance."""

    attacks: tuple[int, ...]
    solutions: tuple[Solution, ...]
    return_KM: Float[np.ndarray, "K M"]
    gaps: tuple[float, ...]
    converged: bool


@dataclass(frozen=True, kw_only=True)
class Defenders:
    """Adds the policy that answers the attack for which its policies do worst, beside what could be had (PROTECTED, arXiv:2402.12673).

    J(pi, nu) is the return of policy pi under attack nu, and ``possible(nu)`` the most that any policy earns under nu, or more. With
    members Pi, one of which answers each attack of N, at the beginning the first of all:

        gap(nu) = possible(nu) - max_{pi in Pi} J(pi, nu),   nu not in N

    and the next member is ``answer(nu)`` for the largest gap. It ends where none is above ``tolerance``, or with ``most`` members. What
    is minimized is how far the best member is from the best answer to the attacker who is there; the worst case is not asked for, so
    the members need not give up what a weak attacker leaves. ``answer``, ``possible`` and ``returns`` may be of tables or of networks.

    - one attack: the answer to it, alone. ``most`` = 1: the answer to the first.
    - a tolerance above the first gap: the same.
    - exact answers and ``possible`` exact: converged means that the best member of each attack is within ``tolerance`` of the best
      policy there is.
    - answers that are not exact: an attack that has its answer is not asked again, so converged says nothing of how good that one is.

    Confidence: partial; the criterion is verified. Ours: attacks are listed, and each answer is trained against one of them, where the
    paper trains new policy and attacker together for the gap, from a ball of perturbations.
    """

    tolerance: float = 1e-9
    most: int = 8

    def __post_init__(self) -> None:
        if not self.tolerance >= 0 or self.most < 1:
            raise ValueError(
                f"Defenders has tolerance {self.tolerance} (a return, 0 or above) and most {self.most} (members, at least 1)"
            )

    def __call__(
        self,
        attacks: Sequence[int],
        possible: Callable[[int], float],
        answer: Callable[[int], Solution],
        returns: Callable[[Solution, int], float],
    ) -> Defended[Solution]:
        known, solved, earned, gaps = list[int](), list[Solution](), list[list[float]](), list[float]()
        following = attacks[0]
        while True:
            known.append(following)
            solved.append(answer(following))
            earned.append([returns(solved[-1], attack) for attack in attacks])
            best_M = np.max(earned, 0)
            gap = {attack: possible(attack) - best_M[m] for m, attack in enumerate(attacks) if attack not in known}
            following = max(gap, key=lambda attack: gap[attack], default=following)
            gaps.append(float(gap.get(following, 0.0)))
            converged = gaps[-1] <= self.tolerance
            if converged or len(known) == self.most:
                return Defended(
                    attacks=tuple(known),
                    solutions=tuple(solved),
                    return_KM=np.array(earned),
                    gaps=tuple(gaps),
                    converged=converged,
                )


@dataclass(frozen=True, kw_only=True)
class AdversarialBandit:
    """Picks one of ``arms`` in each of ``rounds``, where what it earns may be chosen against it (EXP3-IX, as in arXiv:2402.12673).

    With weights w, at first 1, and eta = ``scale`` sqrt(log arms / (arms x rounds)):

        p = w / sum w,   w_i <- w_i exp(-eta x / (p_i + eta / 2))  for the arm i that was played,   x = (high - earned) / (high - low)

    ``low`` and ``high`` are what a round earns at least and at most. x is a loss: with gains in its place an arm that earns nothing
    would never be lowered, and one that is best only later is not found (regret linear in the rounds).

    - one arm: that arm.
    - the same means in each round: the share of the best arm goes to 1.
    - ``scale`` = 0: arms by chance.

    In expectation it earns at most about 2 sqrt(rounds x arms x log arms) x (high - low) less than the best arm would have.

    Confidence: verified.
    """

    arms: int
    rounds: int
    low: float = 0.0
    high: float = 1.0
    scale: float = 2.0

    def __post_init__(self) -> None:
        if self.arms < 1 or self.rounds < 1 or not 0 <= self.scale < math.inf:
            raise ValueError(
                f"AdversarialBandit has arms {self.arms} and rounds {self.rounds}, which are at least 1, and scale {self.scale}, which "
                "is 0 or above, and finite"
            )
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(
                f"AdversarialBandit has low {self.low} and high {self.high}: what a round earns at least and at most, so low < high"
            )

    @property
    def eta(self) -> float:
        return self.scale * math.sqrt(math.log(self.arms) / (self.arms * self.rounds))

    def init(self) -> Float[np.ndarray, " K"]:
        """The logarithms of the weights before the first round."""
        return np.zeros(self.arms)

    def shares(self, log_weight_K: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
        """How often each arm is picked."""
        weight_K = np.exp(log_weight_K - log_weight_K.max())
        return np.asarray(weight_K / weight_K.sum())

    def update(self, log_weight_K: Float[np.ndarray, " K"], arm: int, earned: float) -> Float[np.ndarray, " K"]:
        """After a round in which ``arm`` was played."""
        if not self.low <= earned <= self.high:
            raise ValueError(
                f"a round earned {earned:.6g}, and AdversarialBandit was told {self.low:g} to {self.high:g}: set low and high to what "
                "a round can earn"
            )
        loss = (self.high - earned) / (self.high - self.low)
        new_K = log_weight_K.copy()
        new_K[arm] -= self.eta * loss / (self.shares(log_weight_K)[arm] + self.eta / 2)
        return new_K

    def play(
        self, earn: Callable[[int, int], float], generator: np.random.Generator
    ) -> tuple[Int[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """All rounds: the arm of each, and what ``earn(arm, round)`` says that it earned."""
        log_weight_K, arm_T, earned_T = self.init(), np.zeros(self.rounds, int), np.zeros(self.rounds)
        for t in range(self.rounds):
            arm_T[t] = generator.choice(self.arms, p=self.shares(log_weight_K))
            earned_T[t] = earn(int(arm_T[t]), t)
            log_weight_K = self.update(log_weight_K, int(arm_T[t]), float(earned_T[t]))
        return arm_T, earned_T
