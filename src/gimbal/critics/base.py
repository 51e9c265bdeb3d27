"""What a critic is: a value model of the states in which decisions were taken."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from gimbal.records import AbstractDecisions


class AbstractCritic(nn.Module, ABC):
    """(decisions, hidden_NSH) -> (value_NS before each decision, final_N after the last one).

    A critic that ``reads_hidden`` gets the policy's last hidden states from the policy's own forward pass; whether it sends gradient
    back into that trunk, or detaches them, is its own choice.
    """

    reads_hidden: ClassVar[bool] = False

    @abstractmethod
    def value(
        self, decisions: AbstractDecisions, hidden_NSH: Float[Tensor, "N S H"] | None = None
    ) -> tuple[Float[Tensor, "N S"], Float[Tensor, " N"]]: ...

    def members(
        self, decisions: AbstractDecisions, hidden_NSH: Float[Tensor, "N S H"] | None = None
    ) -> tuple[Float[Tensor, "N S M"], Float[Tensor, "N M"]]:
        """``value`` of each member, for a critic of several; else its own."""
        value_NS, final_N = self.value(decisions, hidden_NSH)
        return value_NS[..., None], final_N[..., None]

    def facts(
        self, decisions: AbstractDecisions, hidden_NSH: Float[Tensor, "N S H"] | None = None
    ) -> Mapping[str, Tensor]:
        """What else it has to say of the states, for ``batch.facts``: the disagreement of an ensemble, say."""
        return {}


class AbstractCriticSpec(ABC):
    """The saved, frozen choice of a critic; ``load`` makes the live one (weights from the run's generator)."""

    @abstractmethod
    def load(self, seed: int) -> AbstractCritic: ...
