"""Problems with few states, whose best value is known by dynamic programming."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float, Shaped

LENGTH, REACH = 6, 20  # states of the river; steps of an episode in it
RUNGS, TERM = 5, 10  # prices of the put above and below the first; steps until it lapses
DEPTH, DIALS = 4, 3  # decisions of the lock, and the choices of each


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Transition probabilities, mean rewards and a horizon. Episodes begin in state 0; a step that leads nowhere ends them, and so
    does the horizon."""

    transition_SAS: Float[np.ndarray, "S A S"]  # rows sum to 1, or to 0 where the episode ends
    reward_SA: Float[np.ndarray, "S A"]
    horizon: int

    def values(self, policy_SA: Shaped[np.ndarray, "S A"] | None = None) -> Float[np.ndarray, " S"]:
        """The expected return from each state with all steps left: of a policy that does not see the time, or of the best that does."""
        value_S = np.zeros(len(self.reward_SA))
        for _ in range(self.horizon):
            worth_SA = self.reward_SA + self.transition_SAS @ value_S
            value_S = worth_SA.max(1) if policy_SA is None else (policy_SA * worth_SA).sum(1)
        return value_S

    def regret(self, policy_SA: Shaped[np.ndarray, "S A"]) -> float:
        """By how much the policy's return is below the best, as a share of the best."""
        best = self.values()[0]
        return float((best - self.values(policy_SA)[0]) / best)


class Tabular(gymnasium.Env):
    """A problem to act in. Observed: the state, one-hot."""

    def __init__(self, problem: Problem) -> None:
        states, actions = problem.reward_SA.shape
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (states,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(actions)
        self.problem, self.state, self.steps = problem, 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.steps = 0, 0
        return self.seen, {}

    def step(self, action: int | np.integer) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        problem = self.problem
        reward, next_S = float(problem.reward_SA[self.state, action]), problem.transition_SAS[self.state, action]
        self.steps += 1
        ended = not next_S.any()
        if not ended:
            self.state = int(self.np_random.choice(len(next_S), p=next_S))
        return self.seen, reward, ended, not ended and self.steps >= problem.horizon, {}

    @property
    def seen(self) -> Float[np.ndarray, " S"]:
        return np.eye(len(self.problem.reward_SA), dtype=np.float32)[self.state]


def river() -> Problem:
    """RiverSwim: action 0 goes left with the stream, 1 swims right, which fails more often than not. The left bank pays .005, the right
    one 1; the way there pays nothing, so that a policy which likes the first reward it meets stays at the left."""
    transition_SAS, reward_SA = np.zeros((LENGTH, 2, LENGTH)), np.zeros((LENGTH, 2))
    for state in range(LENGTH):
        transition_SAS[state, 0, max(0, state - 1)] = 1.0
        left, stay, right = (0.05, 0.6, 0.35)
        if state == 0:
            left, stay, right = (0.0, 0.4, 0.6)
        elif state == LENGTH - 1:
            left, stay, right = (0.4, 0.6, 0.0)
        for at, share in ((state - 1, left), (state, stay), (state + 1, right)):
            if share:
                transition_SAS[state, 1, at] = share
    reward_SA[0, 0], reward_SA[-1, 1] = 0.005, 1.0
    return Problem(transition_SAS=transition_SAS, reward_SA=reward_SA, horizon=REACH)


def put(up: float = 0.5) -> Problem:
    """An American put: the right to sell at a fixed price. Action 0 holds it, and the market goes up a rung with probability ``up``
    and down one else; action 1 sells, which pays how many rungs the market is below the fixed price, over ``RUNGS``, and ends the
    episode. In state 0 both prices are the same, in 1 the market is a rung above, in 2 one below, and so on."""
    step_S = np.array([0, *(sign * far for far in range(1, RUNGS + 1) for sign in (1, -1))])
    place = {int(step): state for state, step in enumerate(step_S)}
    transition_SAS, reward_SA = np.zeros((len(step_S), 2, len(step_S))), np.zeros((len(step_S), 2))
    for state, step in enumerate(step_S.tolist()):
        for to, share in ((step + 1, up), (step - 1, 1 - up)):
            transition_SAS[state, 0, place[max(-RUNGS, min(RUNGS, to))]] += share
    reward_SA[:, 1] = np.maximum(0, -step_S) / RUNGS
    return Problem(transition_SAS=transition_SAS, reward_SA=reward_SA, horizon=TERM)


def combination() -> Problem:
    """A lock: in each state one of the choices goes on and all others end the episode; the last right one pays 1. A policy that
    chooses at random opens it in one of 81 episodes."""
    transition_SAS, reward_SA = np.zeros((DEPTH, DIALS, DEPTH)), np.zeros((DEPTH, DIALS))
    for state in range(DEPTH - 1):
        transition_SAS[state, right(state), state + 1] = 1.0
    reward_SA[-1, right(DEPTH - 1)] = 1.0
    return Problem(transition_SAS=transition_SAS, reward_SA=reward_SA, horizon=DEPTH)


def right(state: int) -> int:
    """The choice of the lock that goes on."""
    return (2 * state + 1) % DIALS


def river_swim() -> Tabular:
    """``tasks.environment=gimbal.environments.tabular:river_swim``."""
    return Tabular(river())


def lock() -> Tabular:
    """``tasks.environment=gimbal.environments.tabular:lock``."""
    return Tabular(combination())
