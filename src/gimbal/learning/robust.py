"""Policies that hold up where transitions are not as they were: against a family of models, and around the one that is learned in."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from jaxtyping import Float

from gimbal.environments.tabular import Problem
from gimbal.environments.uncertain import AbstractUncertainty, TotalVariation

Solution = TypeVar("Solution")


@dataclass(frozen=True, kw_only=True)
class Rounds(Generic[Solution]):
    """What ``WorstCases`` went through: the models in the order in which they were solved, their solutions, and the least return over
    the family of the policy by the first of them, the first two, and so on."""

    models: tuple[int, ...]
    least: tuple[float, ...]
    solutions: tuple[Solution, ...]
    converged: bool


@dataclass(frozen=True, kw_only=True)
class WorstCases:
    """Adds the worst of a family of models until none is worse than those it knows (IWOCS, arXiv:2410.06212).

    With models T_1, ..., T_i solved, each by itself, for its Q*_j, the policy is greedy for min_j Q*_j; the next model is the one
    of the family in which that policy earns least. It ends where no model is worse, by more than ``tolerance``, than the worst of
    those that are solved, or after ``most`` rounds. ``solve`` takes a model's number, ``returns`` the solutions so far and a model's
    number: both may be of tables or of networks.

    - A family of one: its own best policy.
    - A family with every combination of what each state's transitions may be: the best policy against transitions that are chosen
      anew at each step, since then max min = min max.
    - Any other family: no promise. In 60 of five random models each it was the best policy 50 times, and 10 % short at most.

    Confidence: partial (the guard against values that a network's own data do not support is not built: tables need none).
    """

    tolerance: float = 1e-9
    most: int = 10

    def __post_init__(self) -> None:
        if not self.tolerance >= 0 or self.most < 1:
            raise ValueError(
                f"WorstCases has tolerance {self.tolerance} (a return, 0 or above) and most {self.most} (rounds, at least 1)"
            )

    def __call__(
        self,
        models: Sequence[int],
        solve: Callable[[int], Solution],
        returns: Callable[[Sequence[Solution], int], float],
        first: int = 0,
    ) -> Rounds[Solution]:
        known, solved, least = [first], [solve(first)], list[float]()
        while True:
            earned = {model: returns(solved, model) for model in models}
            worst = min(earned, key=lambda model: earned[model])
            least.append(earned[worst])
            converged = earned[worst] >= min(earned[model] for model in known) - self.tolerance
            if converged or len(known) == self.most:
                return Rounds(models=tuple(known), least=tuple(least), solutions=tuple(solved), converged=converged)
            known.append(worst)
            solved.append(solve(worst))


@dataclass(frozen=True, kw_only=True)
class RobustPolicyOptimization:
    """Optimistic learning of a policy that is best in the worst case around the transitions it meets (DR-RPO, arXiv:2510.14246).

    Before each episode, from the last step h to the first, with N(s, a) visits so far and P their frequencies N(s, a, s') /
    (``prior`` + N(s, a)):

        Q_h(s, a) = clip(r(s, a) + inf_{q around P} q.V_{h+1} + ``bonus`` / sqrt(``prior`` + N(s, a)), 0, most)
        pi_h(a|s) ~ pi_ref(a|s) exp(``eta`` Q_h(s, a)),   V_h(s) = log sum_a pi_ref(a|s) exp(``eta`` Q_h(s, a)) / ``eta``

    and the episode is played by pi. ``most`` is the largest return of the steps that are left. Rewards, and so values, are 0 or above.
    pi_ref is the policy of the episode before (mirror descent), or uniform without ``trailing``: ``eta`` then has to be large, 100 for
    returns below 1, and on a put the softmax cost what caution brought.

    A large ``prior`` makes what was rarely tried worth less, which is caution of another kind: on a put, 1 in place of .01 turned the
    plain learner into a robust one.

    - ``uncertainty.radius`` = 0: optimistic value iteration with a softmax policy.
    - ``eta`` to infinity: robust optimistic value iteration, whose policy is greedy.
    - ``bonus`` = 0 and many visits: ``planned`` with the same ``uncertainty``.

    Confidence: partial (features are one-hot and rewards known; the bonus's constant is ours).
    """

    uncertainty: AbstractUncertainty = TotalVariation(radius=0.1)
    eta: float = 1.0
    bonus: float = 0.1
    prior: float = 0.01
    trailing: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.eta < math.inf or not self.bonus >= 0 or not self.prior > 0:
            raise ValueError(
                f"RobustPolicyOptimization has eta {self.eta} and prior {self.prior}, which are above 0, and bonus {self.bonus}, which "
                "is 0 or above"
            )

    def __call__(self, problem: Problem, episodes: int, generator: np.random.Generator) -> Float[np.ndarray, "H S A"]:
        """The policy after so many episodes, each from the first state."""
        return deque(self.policies(problem, episodes + 1, generator), maxlen=1)[0]

    def policies(
        self, problem: Problem, episodes: int, generator: np.random.Generator
    ) -> Iterator[Float[np.ndarray, "H S A"]]:
        """The policy of each episode, before it is played."""
        states, actions = problem.reward_SA.shape
        visits_SAS, ends_SA = np.zeros((states, actions, states)), np.zeros((states, actions))
        reference_HSA = np.full((problem.horizon, states, actions), 1 / actions)
        for _ in range(episodes):
            policy_HSA = self.policy(problem, visits_SAS, ends_SA, reference_HSA)
            yield policy_HSA
            played(problem, policy_HSA, visits_SAS, ends_SA, generator)
            if self.trailing:
                reference_HSA = policy_HSA

    def policy(
        self,
        problem: Problem,
        visits_SAS: Float[np.ndarray, "S A S"],
        ends_SA: Float[np.ndarray, "S A"],
        reference_HSA: Float[np.ndarray, "H S A"],
    ) -> Float[np.ndarray, "H S A"]:
        """By what was visited: how often an action led where, and how often it ended the episode."""
        count_SA = visits_SAS.sum(-1) + ends_SA
        seen_SAS = visits_SAS / (self.prior + count_SA)[..., None]
        bonus_SA = self.bonus / np.sqrt(self.prior + count_SA)
        policy_HSA, value_S = np.zeros_like(reference_HSA), np.zeros(len(count_SA))
        for step in reversed(range(problem.horizon)):
            most = problem.reward_SA.max() * (problem.horizon - step)
            worst_SA = self.uncertainty.least(seen_SAS, value_S)
            q_SA = np.clip(problem.reward_SA + worst_SA + bonus_SA, 0, most)
            score_SA = np.log(np.maximum(reference_HSA[step], 1e-300)) + self.eta * q_SA
            top_S = score_SA.max(1)
            sum_S = np.exp(score_SA - top_S[:, None]).sum(1)
            policy_HSA[step] = np.exp(score_SA - top_S[:, None]) / sum_S[:, None]
            value_S = (top_S + np.log(sum_S)) / self.eta
        return policy_HSA


def tilted(policy_HSA: Float[np.ndarray, "H S A"], score_HSA: Float[np.ndarray, "H S A"]) -> Float[np.ndarray, "H S A"]:
    """The policy times exp(score), normalized."""
    log_HSA = np.log(np.maximum(policy_HSA, 1e-300)) + score_HSA
    new_HSA = np.exp(log_HSA - log_HSA.max(-1, keepdims=True))
    return new_HSA / new_HSA.sum(-1, keepdims=True)


def played(
    problem: Problem,
    policy_HSA: Float[np.ndarray, "H S A"],
    visits_SAS: Float[np.ndarray, "S A S"],
    ends_SA: Float[np.ndarray, "S A"],
    generator: np.random.Generator,
) -> None:
    """One episode; what was visited is counted."""
    state = 0
    for policy_SA in policy_HSA:
        action = int(generator.choice(policy_SA.shape[1], p=policy_SA[state]))
        next_S = problem.transition_SAS[state, action]
        if not next_S.any():
            ends_SA[state, action] += 1
            return
        following = int(generator.choice(len(next_S), p=next_S))
        visits_SAS[state, action, following] += 1
        state = following
