"""Environments for processes of their own, which import this file without torch."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces

SEEDS = Path(os.environ.get("APART_SEEDS", "/nowhere"))  # a file of lines "seed what", of what happens in which task


class Counted(gymnasium.Env):
    """A vector that says how far it is, and ends after six steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        lines = SEEDS.read_text().splitlines() if SEEDS.is_file() else []
        self.steps, self.kind = 0, dict(line.split() for line in lines).get(str(seed))
        if self.kind == "reset":
            raise OSError("no server")
        if self.kind == "exits":
            sys.exit("enough")
        return np.zeros(4), {"unread": lambda: None}

    def step(self, action):
        self.steps += 1
        if self.steps == 3 and self.kind is not None:
            self.happen()
        return np.full(4, self.steps), 1.0, self.steps == 6, False, {"unread": lambda: None, "is_success": True}

    def happen(self):
        if self.kind == "hangs":
            time.sleep(600)
        if self.kind == "raises":
            raise OSError("gone")
        if self.kind == "dies":
            os.kill(os.getpid(), signal.SIGKILL)


class Holding(Counted):
    """Starts a program and says both numbers; its third step waits in code of C, which holds Python's lock."""

    def __init__(self):
        self.program = subprocess.Popen(["sleep", "600"])
        Path(os.environ["APART_SAID"]).write_text(f"{os.getpid()} {self.program.pid}")

    def happen(self):
        ctypes.PyDLL(None).sleep(600)

    def reset(self, *, seed=None, options=None):
        self.steps, self.kind = 0, "holds"
        return np.zeros(4), {}


class Fading(Counted):
    """Its state falls below the smallest normal number, where the mode of the processor decides what it is."""

    def reset(self, *, seed=None, options=None):
        self.steps, self.small = 0, np.full(4, 1e-308)
        return self.look(), {}

    def look(self):
        return self.small * 1e308 * 1e5

    def step(self, action):
        self.small = self.small * 0.3
        self.steps += 1
        return self.look(), 0.0, self.steps == 20, False, {}


class Ring(spaces.Box):
    """A user's own kind of space."""


class Parts(gymnasium.Env):
    """Shows a dict, takes two choices at once, tells costs and successes."""

    observation_space = spaces.Dict({"at": Ring(-1, 1, (2,)), "kind": spaces.Discrete(3)})
    action_space = spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.look(), {}

    def look(self):
        return {"at": self.np_random.uniform(-1, 1, 2).astype(np.float32), "kind": int(self.np_random.integers(3))}

    def step(self, action):
        cost = float(action[1])
        return (
            self.look(),
            float(action[0]),
            self.np_random.random() < 0.1,
            False,
            {"cost": cost, "is_success": cost > 1},
        )


class Wrong(Counted):
    def step(self, action):
        return np.zeros(4), 1.0, False, {}


class Unmade(Counted):
    def __init__(self):
        raise KeyError("licence")


class Crashing(Counted):
    def __init__(self):
        os._exit(3)


class Spaceless(gymnasium.Env):
    pass


class Closing(Counted):
    def close(self):
        Path(os.environ["APART_SAID"]).write_text("closed")


class Telling(Counted):
    def __init__(self):
        with open(os.environ["APART_SAID"], "a") as said:
            said.write(f"{os.getpid()} ")
