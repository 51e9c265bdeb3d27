"""Estimates a task's probability of success from outcomes, for curricula and budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from gimbal.advantages.estimators.distillation import Distillation
from gimbal.composition import OBSERVES, AbstractPart, Composition, Refusal, Verdict
from gimbal.environments.base import AbstractEnvironmentSpec
from gimbal.records import Group

Kind = Literal["failed", "mixed", "solved"]


def outcomes(group: Group, name: str) -> Float[np.ndarray, " G"]:
    """The reward ``name`` of each episode, or its whole score if that is empty, clipped to [0, 1]."""
    earned = [episode.scores[name] if name else episode.earned for episode in group.episodes]
    return np.clip(np.array(earned, dtype=float), 0, 1)


def kind(reward_G: Float[np.ndarray, " G"]) -> Kind:
    """Whether all outcomes are equal, and if so on which side of 1/2."""
    if reward_G.max() > reward_G.min():
        return "mixed"
    return "solved" if reward_G[0] > 0.5 else "failed"


class SuccessModel:
    """Beta(a, b) of each task, by its id, that forgets at two speeds, because the policy moves.

        every step, every task   a <- prior + fade (a - prior), and b alike
        a visit with outcomes r  a <- prior + fresh (a - prior) + sum r,  b <- prior + fresh (b - prior) + sum (1 - r)

    - ``fade`` = ``fresh`` = 1: all outcomes so far, with 2 ``prior`` of mean 1/2 before them.
    - ``fresh`` = 0: those of the last visit.

    A task that was never seen is at the prior. Tasks are independent, so the order of visits within a step does not matter, except for
    several visits to one task.
    """

    def __init__(self, *, prior: float, fade: float, fresh: float) -> None:
        if prior <= 0 or not 0 <= fade <= 1 or not 0 <= fresh <= 1:
            raise ValueError(
                f"a success model has prior {prior}, above 0, and fade {fade} and fresh {fresh}, which are shares from 0 to 1"
            )
        self.prior, self.fade, self.fresh = prior, fade, fresh
        self.now = 0  # steps
        self.seen: dict[str, tuple[float, float, int]] = {}  # a and b beyond the prior, as of which step

    def step(self) -> None:
        self.now += 1

    def visit(self, task: str, reward_G: Float[np.ndarray, " G"]) -> None:
        a, b = self._beyond(task)
        right, count = float(reward_G.sum()), len(reward_G)
        self.seen[task] = (self.fresh * a + right, self.fresh * b + count - right, self.now)

    def counts(self, tasks: Sequence[str | None]) -> Float[np.ndarray, "P 2"]:
        """a and b of each now; None is a task that was never given out."""
        return self.prior + np.array([self._beyond(task) for task in tasks]).reshape(-1, 2)

    def chance(self, tasks: Sequence[str | None]) -> Float[np.ndarray, " P"]:
        """The mean of each."""
        counts_P2 = self.counts(tasks)
        return counts_P2[:, 0] / counts_P2.sum(-1)

    def _beyond(self, task: str | None) -> tuple[float, float]:
        if task is None or task not in self.seen:
            return 0.0, 0.0
        a, b, step = self.seen[task]
        share = self.fade ** (self.now - step)
        return share * a, share * b

    def state_dict(self) -> dict[str, Any]:
        return {"now": self.now, "seen": {task: list(counts) for task, counts in self.seen.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.now = state["now"]
        self.seen = {task: (a, b, step) for task, (a, b, step) in state["seen"].items()}


@dataclass(frozen=True, kw_only=True)
class AbstractSuccessTracking(AbstractPart):
    """Settings of curricula and budgets that use a ``SuccessModel``: its parameters, and the reward (``name``, or the whole score)."""

    names_rewards: ClassVar[tuple[str, ...]] = ("name",)

    prior: float = 1.0
    fade: float = 0.99
    fresh: float = 0.7
    name: str = ""

    def __post_init__(self) -> None:
        self.model()

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        rewards = whole.run.rewards
        counted = any(reward.weight for reward in rewards) or (self.name and rewards)
        paid = whole.has(AbstractEnvironmentSpec) or whole.doing(OBSERVES)
        if whole.has(Distillation) and not counted and not paid:  # any other run has something that pays
            yield Refusal(
                f"{type(self).__name__} goes by how often tasks are solved, and nothing says so here: add a reward; of one with "
                "weight 0 give the name, as in curriculum.name=REWARD"
            )

    def model(self) -> SuccessModel:
        return SuccessModel(prior=self.prior, fade=self.fade, fresh=self.fresh)
