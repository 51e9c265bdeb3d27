"""What a critic is: a value model of the states in which decisions were taken."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jaxtyping import Float
from torch import Tensor, nn

from gimbal.records import AbstractDecisions


class AbstractCritic(nn.Module, ABC):
    """decisions -> (value_NS before each decision, final_N after the last one)."""

    @abstractmethod
    def value(self, decisions: AbstractDecisions) -> tuple[Float[Tensor, "N S"], Float[Tensor, " N"]]: ...


class AbstractCriticSpec(ABC):
    """The saved, frozen choice of a critic; ``load`` makes the live one (weights from the run's generator)."""

    @abstractmethod
    def load(self, seed: int) -> AbstractCritic: ...
