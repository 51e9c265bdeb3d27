"""An environment that takes its time, remembers, and can kill its process in the middle of a call."""

import os
import signal
import time
from dataclasses import dataclass
from typing import ClassVar

from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, Moment


@dataclass(frozen=True, kw_only=True)
class Slow(AbstractEnvironmentSpec):
    """Says how often it was asked, and pays for that; the process is killed during call number ``left`` (None: never)."""

    seconds: float = 0.02
    left: ClassVar[int | None] = None  # of this process: a resumed run is another

    @property
    def triggers(self):
        return tuple("123456")

    def open(self):
        return Asked(self.seconds)


class Asked(AbstractEnvironment):
    def __init__(self, seconds):
        self.seconds, self.count = seconds, 0

    def reset(self, task, seed):
        self.count = seed % 3

    def step(self, action):
        time.sleep(self.seconds / 2)
        if Slow.left is not None:
            Slow.left -= 1
            if Slow.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.seconds / 2)
        self.count += 1
        return Moment(observation=f" {self.count} ", reward=0.1 * self.count)
