"""An actor-critic on tables that explores on purpose, and whose critic changes rarely."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from gimbal.environments.tabular import Problem
from gimbal.learning.robust import played, tilted


@dataclass(frozen=True, kw_only=True)
class RareSwitching:
    """An optimistic critic of the best policy, an actor that climbs it, and a new start for the actor where the critic changes
    (arXiv:2505.03710, on tables).

    With N(s, a) visits so far and P their frequencies, whenever some N(s, a) is twice what it was at the last change:

        critic   Q_h(s, a) = clip(r(s, a) + P.V_{h+1} + ``bonus`` / sqrt(N(s, a)), 0, most),   V_h(s) = max_a Q_h(s, a)
        actor    pi_h uniform

    and before every episode pi_h(a|s) <- pi_h(a|s) exp(``eta`` Q_h(s, a)), normalized; it is played by pi. ``most`` is the largest
    return of the steps that are left, and what was never tried is worth it. So the critic changes at most S A (log2(episodes x steps)
    + 1) times, S states and A actions, and the actor has settled on the old one before it is begun anew.

    - ``eta`` to infinity: optimistic value iteration that plans anew when a count doubles.
    - ``bonus`` = 0 and many visits: the critic is dynamic programming's.
    - ``reset`` off: the actor goes on from the policy that it had, as plain mirror descent.

    Confidence: partial; from the card of the paper; ours: counts in place of a confidence set of critics (on tables the published test
    of the loss and a doubled count come as often, up to constants), known rewards, the bonus's constant.
    """

    eta: float = 10.0
    bonus: float = 0.1
    reset: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.eta < math.inf or not 0 <= self.bonus < math.inf:
            raise ValueError(
                f"RareSwitching has eta {self.eta}, which is above 0, and bonus {self.bonus}, which is 0 or above; both are finite"
            )

    def policies(
        self, problem: Problem, episodes: int, generator: np.random.Generator
    ) -> Iterator[tuple[Float[np.ndarray, "H S A"], int]]:
        """The policy of each episode before it is played, and how often the critic has changed."""
        states, actions = problem.reward_SA.shape
        visits_SAS, ends_SA = np.zeros((states, actions, states)), np.zeros((states, actions))
        uniform_HSA = np.full((problem.horizon, states, actions), 1 / actions)
        policy_HSA, q_HSA, known_SA, changes = uniform_HSA, self.critic(problem, visits_SAS, ends_SA), ends_SA.copy(), 0
        for _ in range(episodes):
            count_SA = visits_SAS.sum(-1) + ends_SA
            if (count_SA >= 2 * np.maximum(known_SA, 0.5)).any():
                q_HSA, known_SA, changes = self.critic(problem, visits_SAS, ends_SA), count_SA, changes + 1
                policy_HSA = uniform_HSA if self.reset else policy_HSA
            policy_HSA = tilted(policy_HSA, self.eta * q_HSA)
            yield policy_HSA, changes
            played(problem, policy_HSA, visits_SAS, ends_SA, generator)

    def critic(
        self, problem: Problem, visits_SAS: Float[np.ndarray, "S A S"], ends_SA: Float[np.ndarray, "S A"]
    ) -> Float[np.ndarray, "H S A"]:
        """By what was visited: how often an action led where, and how often it ended the episode."""
        count_SA = visits_SAS.sum(-1) + ends_SA
        seen_SAS, some_SA = visits_SAS / np.maximum(count_SA, 1)[..., None], np.maximum(count_SA, 1)
        q_HSA, value_S = np.zeros((problem.horizon, *count_SA.shape)), np.zeros(len(count_SA))
        for step in reversed(range(problem.horizon)):
            most = problem.reward_SA.max() * (problem.horizon - step)
            q_SA = problem.reward_SA + seen_SAS @ value_S + self.bonus / np.sqrt(some_SA)
            q_HSA[step] = np.where(count_SA > 0, np.clip(q_SA, 0, most), most)
            value_S = q_HSA[step].max(1)
        return q_HSA
