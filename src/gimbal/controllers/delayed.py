"""A coefficient that starts late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.controllers.base import AbstractController, State


@dataclass(frozen=True, kw_only=True)
class Delayed(AbstractController):
    """One value for the first steps, another afterwards. On ``optimization.learning_rate`` it fits a critic before the policy moves
    (PPO-max, arXiv:2307.04964; value pre-training of VC-PPO, arXiv:2503.01491).

    value = before in the first ``steps`` learner steps, then ``after``. It reads no signal.

    - ``steps`` = 0: ``after`` from the start.
    - ``before`` = 0 on the learning rate, and a critic whose loss sends no gradient into the policy: a warm-up of only the critic.

    Confidence: partial; published: the critic is fitted first; ours: for how many ``steps``.
    """

    steps: int = 5
    before: float = 0.0
    after: float = 1e-4

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ValueError(
                f"Delayed.steps is {self.steps}; it must be a number of learner steps, where 0 is no delay"
            )

    def init(self) -> State:
        return self._after(0.0)

    def update(self, state: State, signals: Mapping[str, float]) -> State:
        return self._after(state["steps"] + 1)

    def _after(self, steps: float) -> State:
        return {"value": self.before if steps < self.steps else self.after, "steps": float(steps)}

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        moves_rate = whole.run.learns.controllers.get("optimization.learning_rate") is self
        if moves_rate and self.after != whole.run.learns.optimization.learning_rate:
            yield Refusal("Delayed would replace optimization.learning_rate with its own number: give both the same")
