"""Restless arms that a few workers keep going together, whose best actions are known exactly."""

from __future__ import annotations

from itertools import combinations
from typing import Any, ClassVar

import gymnasium
import numpy as np
from jaxtyping import Float, Int, Shaped

from gimbal.ops import philox

ARMS, WORKERS, BUDGET = 6, 8, 2
FORGETS, LASTS, WORTH = -3.0, 2.0, 0.7  # log odds of being good next without help; the worth of an arm that lasts


class CoupledBandit(gymnasium.Env):
    """``ARMS`` arms that are good (1) or bad (0), and ``WORKERS`` workers, each of whom reaches two of them, of whom ``BUDGET`` may be
    sent at each step (a coupled restless bandit with several interventions, after arXiv:2503.01919). With s what the arms are, a_i
    whether worker i is sent, and reach_ij what it does for arm j, fixed and from 2 to 4,

        P(s'_j = 1 | s, a) = 1 / (1 + exp(- base_j(s_j) - sum_i a_i reach_ij)),   reward sum_j worth_j s'_j

    The arms of the first half are worth 1 and forget: base -3 in both states. Those of the second are worth ``WORTH`` and last: base 2
    once they are good, -3 until then. So it pays now to send for the first, and later to have sent for the second. An episode
    begins with arms drawn evenly and is cut off after 20 steps.

    Observed: s. An action is a number for each worker: those above 1/2 are sent, the largest first, as far as ``BUDGET`` goes.
    ``listed``: a choice among all sets of at most ``BUDGET`` workers instead (``sets``), for policies that have a value for each.
    """

    longest: ClassVar[int] = 20

    def __init__(self, *, listed: bool = False) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (ARMS,), np.float32)
        self.listed = sets() if listed else None
        self.action_space: gymnasium.Space[Any] = (
            gymnasium.spaces.Box(0.0, 1.0, (WORKERS,), np.float32)
            if self.listed is None
            else gymnasium.spaces.Discrete(len(self.listed))
        )
        self.state, self.steps = np.zeros(ARMS, int), 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.steps = self.np_random.integers(0, 2, ARMS), 0
        return self.state.astype(np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        sent_I = admitted(np.asarray(action)) if self.listed is None else self.listed[int(action)]
        good_J = chances(self.state[None], sent_I[None])[0, 0]
        self.state = (self.np_random.random(ARMS) < good_J).astype(int)
        self.steps += 1
        return self.state.astype(np.float32), float(self.state @ worth()), False, self.steps >= self.longest, {}


def listed() -> CoupledBandit:
    """The same as one choice: ``tasks.environment=gimbal.environments.coupled_bandit:listed``."""
    return CoupledBandit(listed=True)


def admitted(action_I: Float[np.ndarray, " I"]) -> Int[np.ndarray, " I"]:
    """Who is sent: the largest numbers above 1/2, as far as the budget goes."""
    order_I = np.argsort(-action_I, kind="stable")
    sent_I = np.zeros(WORKERS, int)
    sent_I[order_I[:BUDGET]] = action_I[order_I[:BUDGET]] > 0.5
    return sent_I


def sets() -> Int[np.ndarray, "A I"]:
    """All that may be sent together."""
    chosen = [each for size in range(BUDGET + 1) for each in combinations(range(WORKERS), size)]
    found_AI = np.zeros((len(chosen), WORKERS), int)
    for row, each in enumerate(chosen):
        found_AI[row, list(each)] = 1
    return found_AI


def worth() -> Float[np.ndarray, " J"]:
    return np.where(np.arange(ARMS) < ARMS // 2, 1.0, WORTH)


def reach() -> Float[np.ndarray, "I J"]:
    """What each worker does for each arm: workers take turns between the halves, two arms each."""
    draws, half = philox("coupled bandit"), ARMS // 2
    found_IJ = np.zeros((WORKERS, ARMS))
    for worker in range(WORKERS):
        found_IJ[worker, half * (worker % 2) + draws.choice(half, 2, replace=False)] = draws.uniform(2, 4, 2)
    return found_IJ


def chances(state_SJ: Int[np.ndarray, "S J"], sent_AI: Int[np.ndarray, "A I"]) -> Float[np.ndarray, "S A J"]:
    """How likely each arm is good next."""
    lasts_J = np.where(np.arange(ARMS) < ARMS // 2, FORGETS, LASTS)
    base_SJ = np.where(state_SJ == 1, lasts_J, FORGETS)
    return 1 / (1 + np.exp(-base_SJ[:, None] - (sent_AI @ reach())[None]))


def states() -> Int[np.ndarray, "S J"]:
    return np.stack(np.unravel_index(np.arange(2**ARMS), (2,) * ARMS), 1)


def ahead(value_S: Float[np.ndarray, " S"], chance_SAJ: Float[np.ndarray, "S A J"]) -> Float[np.ndarray, "S A"]:
    """What is expected of the state that comes, of values in the order of ``states``: arm by arm, since each goes its own way."""
    left = np.broadcast_to(value_S, (*chance_SAJ.shape[:2], len(value_S)))
    for arm in range(ARMS):
        bad, good = np.split(left, 2, axis=-1)
        chance_SA1 = chance_SAJ[..., arm, None]
        left = bad + chance_SA1 * (good - bad)
    return left[..., 0]


def playing(action_SI: Shaped[np.ndarray, "S I"]) -> Float[np.ndarray, "S A"]:
    """The policy that sends these workers in each of ``states``."""
    return (action_SI[:, None] == sets()[None]).all(-1).astype(float)


def myopic() -> Float[np.ndarray, "S A"]:
    """The policy that looks at the reward of the next step alone."""
    return playing(sets()[(chances(states(), sets()) @ worth()).argmax(1)])


def returns(policy_SA: Float[np.ndarray, "S A"] | None = None) -> float:
    """The mean return of an episode, exactly: of a policy that plays each of ``sets`` so often in each of ``states``, or of the best
    one."""
    chance_SAJ = chances(states(), sets())
    reward_SA, value_S = chance_SAJ @ worth(), np.zeros(2**ARMS)
    for _ in range(CoupledBandit.longest):
        worth_SA = reward_SA + ahead(value_S, chance_SAJ)
        value_S = worth_SA.max(1) if policy_SA is None else (policy_SA * worth_SA).sum(1)
    return float(value_S.mean())
