"""Commands of four words, some of which trigger one of five bugs that are planted in a program."""

from __future__ import annotations

from itertools import product
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Bool, Float, Int

SLOTS, WORDS, BUGS = 4, 8, 5


class PlantedBugs(gymnasium.Env):
    """A red team says four words of eight, one after the other; the last one pays 1 where the command triggers a bug, else 0. Each of
    five bugs is triggered by two words in two of the slots, whatever the others are: by 64 commands, and all together by about 300 of
    4,096. Which words they are depends on ``plant`` (an attribute).

    Observed: for each slot the word in it, one-hot, or nothing.
    """

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (SLOTS * WORDS,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(WORDS)
        self.plant, self.said = 0, list[int]()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.said = []
        return self.seen, {}

    def step(self, action: int | np.integer) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.said.append(int(action))
        ended = len(self.said) == SLOTS
        paid = float(triggered(np.array([self.said]), int(self.plant)).any()) if ended else 0.0
        return self.seen, paid, ended, False, {}

    @property
    def seen(self) -> Float[np.ndarray, " O"]:
        shown = np.zeros((SLOTS, WORDS), np.float32)
        shown[np.arange(len(self.said)), self.said] = 1.0
        return shown.reshape(-1)


def planted(plant: int) -> Int[np.ndarray, "B 4"]:
    """Of each bug its two slots and the words in them."""
    generator = np.random.default_rng(plant)
    slots = [np.sort(generator.choice(SLOTS, 2, replace=False)) for _ in range(BUGS)]
    return np.array([[*pair, *generator.integers(WORDS, size=2)] for pair in slots])


def triggered(command_KS: Int[np.ndarray, "K S"], plant: int) -> Bool[np.ndarray, "K B"]:
    """Which bugs each command triggers."""
    bug_B4 = planted(plant)
    return (command_KS[:, bug_B4[:, 0]] == bug_B4[:, 2]) & (command_KS[:, bug_B4[:, 1]] == bug_B4[:, 3])


def commands() -> Int[np.ndarray, "K S"]:
    """All of them."""
    return np.array([*product(range(WORDS), repeat=SLOTS)])
