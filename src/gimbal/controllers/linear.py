"""A coefficient that moves linearly from one value to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gimbal.controllers.base import AbstractController, State


@dataclass(frozen=True, kw_only=True)
class Linear(AbstractController):
    """A schedule: ``initial`` + (``final`` - ``initial``) min(1, t / ``steps``) after t learner steps; it reads no signal.

    On the weights of two rewards it shifts from one to the other, such as from form to correctness (SMILES-GRPO, arXiv:2601.17687).

    - ``steps`` = 0: ``final`` from the start.
    - ``final`` = ``initial``: constant.

    Published: over 30 steps, the weight of form from .5 to 0, of correctness from .5 to 1.

    Confidence: verified.
    """

    initial: float = 0.5
    final: float = 0.0
    steps: int = 30

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ValueError(
                f"Linear.steps is {self.steps}; it must be a number of learner steps, where 0 jumps to the final value"
            )

    def init(self) -> State:
        return self._at(0.0)

    def update(self, state: State, signals: Mapping[str, float]) -> State:
        return self._at(state["step"] + 1)

    def _at(self, step: float) -> State:
        done = min(1.0, step / self.steps) if self.steps else 1.0
        return {"value": (1 - done) * self.initial + done * self.final, "step": step}
