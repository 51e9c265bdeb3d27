"""A grid with a few rich corners, on which the distribution of what a policy ends at is known exactly."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float, Int, Shaped

SIDE, DIMENSIONS = 8, 2
BASE, RING, MODE = 0.01, 0.5, 2.0  # R0, R1 and R2


class Hypergrid(gymnasium.Env):
    """From the corner (0, 0) each action makes one coordinate larger by 1, or ends the episode (the last action). Ending at x pays

        R(x) = .01 + .5 [every |x_d / 7 - 1/2| > .25] + 2 [every one in (.3, .4)]

    (arXiv:2106.04399, with R0 = .01 of its harder grid): four cells pay 2.51, twelve around them .51, all others .01. An action that
    would leave the grid ends the episode too, so that every action is there in every cell.

    With ``flow``, for an objective that draws whole rollouts in proportion to exp(return) (FlowBalance): ending pays log R(x) - log of
    the number of actions that end there, and a step to y pays -log of the number of cells that it could have come from, which is the
    uniform backward policy's log P_B. All ways to x together then count R(x).

    Observed: each coordinate one-hot.
    """

    def __init__(self, *, flow: bool = False) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (SIDE * DIMENSIONS,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(DIMENSIONS + 1)
        self.flow, self.cell = flow, np.zeros(DIMENSIONS, int)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = np.zeros(DIMENSIONS, int)
        return seen(self.cell[None])[0], {}

    def step(self, action: int | np.integer) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        ends = action == DIMENSIONS or self.cell[action] == SIDE - 1
        if not ends:
            self.cell[action] += 1
        paid = log_paid(self.cell, ends=bool(ends)) if self.flow else float(ends * reward(self.cell[None])[0])
        return seen(self.cell[None])[0], paid, bool(ends), False, {}


def flow() -> Hypergrid:
    """The grid as FlowBalance needs it: ``tasks.environment=gimbal.environments.hypergrid:flow``."""
    return Hypergrid(flow=True)


def reward(cell_KD: Int[np.ndarray, "K D"]) -> Float[np.ndarray, " K"]:
    """R of each cell."""
    away_KD = np.abs(cell_KD / (SIDE - 1) - 0.5)
    return np.asarray(BASE + RING * (away_KD > 0.25).all(1) + MODE * ((away_KD > 0.3) & (away_KD < 0.4)).all(1))


def log_paid(cell: Int[np.ndarray, " D"], *, ends: bool) -> float:
    """What a step to this cell pays, or the end at it, where the returns of all ways to an end have to add up to its reward."""
    if ends:
        return float(np.log(reward(cell[None])[0]) - np.log(1 + (cell == SIDE - 1).sum()))
    return -float(np.log((cell > 0).sum()))


def cells() -> Int[np.ndarray, "K D"]:
    """All of them, each behind those that lead to it."""
    every_KD = np.stack(np.unravel_index(np.arange(SIDE**DIMENSIONS), (SIDE,) * DIMENSIONS), 1)
    return every_KD[np.argsort(every_KD.sum(1), kind="stable")]


def seen(cell_KD: Int[np.ndarray, "K D"]) -> Float[np.ndarray, "K O"]:
    """What is observed in each cell."""
    return np.eye(SIDE, dtype=np.float32)[cell_KD].reshape(len(cell_KD), -1)


def target() -> Float[np.ndarray, " K"]:
    """R / Z of each of ``cells``."""
    reward_K = reward(cells())
    return reward_K / reward_K.sum()


def ends_of(probability_KA: Shaped[np.ndarray, "K A"]) -> Float[np.ndarray, " K"]:
    """How often a policy ends at each of ``cells``, exactly: its actions' probabilities there, carried through the grid."""
    every_KD = cells()
    place = {tuple(cell): k for k, cell in enumerate(every_KD.tolist())}
    through_K, ends_K = np.zeros(len(every_KD)), np.zeros(len(every_KD))
    through_K[0] = 1.0
    for k, cell in enumerate(every_KD.tolist()):
        flows_A = through_K[k] * np.asarray(probability_KA[k], float)
        ends_K[k] = flows_A[DIMENSIONS]
        for axis in range(DIMENSIONS):
            if cell[axis] == SIDE - 1:
                ends_K[k] += flows_A[axis]
            else:
                through_K[place[(*cell[:axis], cell[axis] + 1, *cell[axis + 1 :])]] += flows_A[axis]
    return ends_K


def modes() -> Int[np.ndarray, " M"]:
    """The places in ``cells`` of the richest."""
    return np.flatnonzero(reward(cells()) > MODE)
