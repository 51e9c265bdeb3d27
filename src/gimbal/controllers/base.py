"""Controllers: a controller moves one coefficient from step to step, by a signal of the previous step.

A run binds controllers to coefficients by dotted path: ``controllers={"shaping.0.strength": Lagrangian(...)}``. The learner
calls ``update`` once after each step with that step's metrics and uses the value in the next. A step size is a rule without
state, which scales one update by the metrics of its own minibatch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from gimbal.composition import AbstractPart, State


class AbstractController(AbstractPart, ABC):
    """A frozen dataclass of the rule's constants; its state is passed in and out. ``state["value"]`` is the coefficient."""

    @abstractmethod
    def init(self) -> State: ...

    @abstractmethod
    def update(self, state: State, signals: Mapping[str, float]) -> State:
        """The next state. ``signals`` are the metrics of the step; a missing signal is a KeyError that names it.

        The learner refuses the run then, unless the closed loop undid the step: the state stays as it is.
        """


class AbstractStepSize(AbstractPart, ABC):
    """metrics of a minibatch -> factor of the learning rate for this update. A frozen dataclass."""

    @abstractmethod
    def __call__(self, metrics: Mapping[str, float]) -> float: ...
