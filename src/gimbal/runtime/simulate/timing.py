"""What a simulation is told of the work: how long rollouts are, and how many seconds everything takes."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from dataclasses import dataclass


class AbstractLengths(ABC):
    """How many decisions a rollout has."""

    @abstractmethod
    def draw(self, seed: int, group: int, rollouts: int) -> list[int]:
        """Of each rollout of this group, from at least 1; the same for the same arguments."""


@dataclass(frozen=True, kw_only=True)
class LogNormal(AbstractLengths):
    """Log-normal lengths with this ``mean`` and coefficient of variation ``cv``, before the cut-off at ``limit``.

    ``task_share`` of the variance of the logarithm belongs to the task: a hard one is long in all rollouts of its group.
    """

    mean: float = 2000.0
    cv: float = 1.0
    limit: int = 16384
    task_share: float = 0.5

    def __post_init__(self) -> None:
        if self.mean <= 0 or self.cv < 0 or self.limit < 1 or not 0 <= self.task_share <= 1:
            raise ValueError(
                f"{self}: mean must be above 0, cv 0 or above, limit 1 or above, and task_share from 0 to 1"
            )

    def draw(self, seed: int, group: int, rollouts: int) -> list[int]:
        rng, variance = random.Random(seed * 1_000_003 + group), math.log1p(self.cv**2)
        of_task = rng.gauss(math.log(self.mean) - variance / 2, math.sqrt(variance * self.task_share))
        spread = math.sqrt(variance * (1 - self.task_share))
        return [min(self.limit, max(1, round(math.exp(rng.gauss(of_task, spread))))) for _ in range(rollouts)]


@dataclass(frozen=True, kw_only=True)
class RecordedLengths(AbstractLengths):
    """Lengths of recorded rollouts: samples a group, then its rollouts (each once if there are enough)."""

    groups: tuple[tuple[int, ...], ...]

    def draw(self, seed: int, group: int, rollouts: int) -> list[int]:
        rng = random.Random(seed * 1_000_003 + group)
        known = rng.choice(self.groups)
        return rng.sample(known, rollouts) if rollouts <= len(known) else rng.choices(known, k=rollouts)


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """Seconds on one device. Of the sampler: see the module. Of the learner: see ``train``."""

    step_s: float = 0.0  # per decode step
    row_s: float = 0.0  # plus this per rollout in it
    context_s: float = 0.0  # plus this per token in the caches
    prefill_token_s: float = 0.0  # per prompt token, once per group; also per token of a recomputed cache
    start_s: float = 0.0  # per rollout: start, end, reward
    load_s: float = 0.0  # per load of weights, during which the device stops
    train_step_s: float = 0.0  # per learner step
    train_token_s: float = 0.0  # plus this per decision, on one device
    train_prompt_token_s: float = 0.0  # plus this per prompt token, once per group
    sync_s: float = 0.0  # of the learner after each step: publish, delivery proof, record

    def __post_init__(self) -> None:
        if any(not value >= 0 for value in vars(self).values()):
            raise ValueError(f"{self}: seconds must be 0 or above")

    def train(self, decisions: int, prompt_tokens: int, devices: int) -> float:
        """The work of a step divides over devices, its fixed part does not."""
        work = self.train_token_s * decisions + self.train_prompt_token_s * prompt_tokens
        return self.train_step_s + work / devices


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Seconds from the last decision of a rollout to its score (tools, judges): median exp(sigma Normal), at most ``longest``.

    They hold up neither a device nor a slot.
    """

    median: float = 0.0
    sigma: float = 0.0
    longest: float = math.inf

    def __post_init__(self) -> None:
        if any(not value >= 0 for value in vars(self).values()):
            raise ValueError(f"{self}: values must be 0 or above")

    def draw(self, seed: int, group: int, sample: int) -> float:
        spread = self.sigma and self.sigma * random.Random(f"{seed}/{group}/{sample}").gauss(0.0, 1.0)
        return min(self.longest, self.median * math.exp(spread))
