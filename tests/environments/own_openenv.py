"""An environment as OpenEnv's own classes make it, served by the package: own_openenv.py PORT SESSIONS."""

import os
import random
import sys

import uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    number: int


class Hint(Observation):
    hint: str = ""


class Guessing(Environment):
    """Which number of 1 to 20 it is; 666 breaks it, and 999 ends the server."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, most=20, **kwargs):
        self.secret, self.said = random.Random(seed).randint(1, most), 0
        return Hint(hint=f"1 to {most}")

    def step(self, action):
        self.said += 1
        if action.number == 999:
            os._exit(3)
        if action.number == 666:
            raise RuntimeError("the number of the beast")
        if action.number == self.secret:
            return Hint(hint="right", reward=1.0, done=True)
        return Hint(hint="higher" if action.number < self.secret else "lower")

    @property
    def state(self):
        return State(step_count=self.said)


if __name__ == "__main__":
    app = create_app(Guessing, Guess, Hint, env_name="guessing", max_concurrent_envs=int(sys.argv[2]))
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
