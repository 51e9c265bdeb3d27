"""Text environments as people write them for gymnasium."""

import gymnasium
from gymnasium.spaces import Discrete, Text

WORDS = Text(min_length=0, max_length=200, charset="abcdefghijklmnopqrstuvwxyz 0123456789")


class Guess(gymnasium.Env):
    """A number from 1 to ``most``, found by asking; it takes a text or a choice, and is cut off after 6 guesses."""

    observation_space = WORDS

    def __init__(self, most=20, choice=False):
        self.most = most
        self.action_space = Discrete(most, start=1) if choice else Text(max_length=2, charset="0123456789")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.wanted, self.asked = int(self.np_random.integers(1, self.most + 1)), 0
        return "guess from 1 to 20", {}

    def step(self, action):
        self.asked += 1
        said = int(action)
        right = said == self.wanted
        told = "right" if right else "higher" if said < self.wanted else "lower"
        return told, float(right), right, self.asked == 6 and not right, {"is_success": right}


def choices():
    return Guess(choice=True)


class Numb(Guess):
    """Shows what its space does not hold."""

    def step(self, action):
        return 3, 0.0, False, False, {}


class Endless(Guess):
    """Pays what is no number."""

    def step(self, action):
        seen, _, *rest = super().step(action)
        return seen, float("nan"), *rest


gymnasium.register("OwnGuess-v0", entry_point=Guess)
