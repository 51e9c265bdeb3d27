"""A threshold that widens while rewards rise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, pstdev

from gimbal.controllers.base import AbstractController, State


@dataclass(frozen=True, kw_only=True)
class PhasedPID(AbstractController):
    """PID control of how fast the reward rises, times a factor for the phase of training (SAFE, arXiv:2602.04651).

    value = clip((base + proportional e + integral sum e + derivative (e - e_before)) phase, low, high);  e = m - m_before - speed,
    m the average of the reward (``smoothing`` kept each step), sum e within [-1, 1]. The phase depends on the last ``window``
    rewards: ``warmup`` while there are fewer; else ``climbing`` where their mean exceeds that of the ``window`` before by more than
    ``rise``; else ``converged`` where their deviation is below ``calm`` and their mean above ``solved``; else ``plateau``.

    - all gains 0: base times the phase's factor.
    - all factors 1: only the PID rule.
    - ``low`` = ``high``: constant.

    Published: all defaults, for rewards of about 0 to 1. Their code applies it once per update, ours once per step.

    Confidence: verified.
    """

    signal: str = "reward/mean"
    base: float = 0.3
    proportional: float = 0.3
    integral: float = 0.01
    derivative: float = 0.05
    speed: float = 1e-3
    smoothing: float = 0.95
    window: int = 50
    warmup: float = 1.5
    climbing: float = 1.2
    plateau: float = 0.8
    converged: float = 1.0
    rise: float = 0.01
    calm: float = 0.02
    solved: float = 0.7
    low: float = 0.1
    high: float = 0.6

    def __post_init__(self) -> None:
        if self.window < 1 or not 0 <= self.smoothing <= 1 or self.low > self.high:
            raise ValueError(
                f"PhasedPID has window {self.window}, smoothing {self.smoothing} and bounds [{self.low}, {self.high}]; window is at "
                "least 1, smoothing the share kept of the average (0 to 1), and low at most high"
            )

    def init(self) -> State:
        return {"value": self._bounded(self.base * self.warmup), "seen": 0.0, "mean": 0.0, "sum": 0.0, "error": 0.0}

    def update(self, state: State, signals: Mapping[str, float]) -> State:
        reward = signals[self.signal]
        rewards = [state[key] for key in _places(state["seen"], 2 * self.window)] + [reward]
        rewards = rewards[-2 * self.window :]
        mean, total, error, move = reward, state["sum"], state["error"], 0.0
        if state["seen"]:
            mean = self.smoothing * state["mean"] + (1 - self.smoothing) * reward
            error = mean - state["mean"] - self.speed
            total = min(max(total + error, -1.0), 1.0)
            move = self.proportional * error + self.integral * total + self.derivative * (error - state["error"])
        value = self._bounded((self.base + move) * self._phase(rewards))
        fresh = {"value": value, "seen": state["seen"] + 1, "mean": mean, "sum": total, "error": error}
        return fresh | dict(zip(_places(fresh["seen"], 2 * self.window), rewards, strict=True))

    def _phase(self, rewards: list[float]) -> float:
        if len(rewards) < self.window:
            return self.warmup
        recent = rewards[-self.window :]
        before = rewards[: self.window] if len(rewards) == 2 * self.window else recent
        if fmean(recent) > fmean(before) + self.rise:
            return self.climbing
        if pstdev(recent) < self.calm and fmean(recent) > self.solved:
            return self.converged
        return self.plateau

    def _bounded(self, value: float) -> float:
        return min(max(value, self.low), self.high)


def _places(seen: float, most: int) -> list[str]:
    """Keys of the rewards kept, oldest first."""
    return [f"reward/{k}" for k in range(min(int(seen), most))]
