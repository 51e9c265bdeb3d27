"""Critics: a critic is a value model of the states in which decisions were made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from gimbal.composition import AbstractPart
from gimbal.records import AbstractDecisions, TrainBatch


class AbstractCritic(nn.Module, ABC):
    """(decisions, hidden_NSH) -> (value_NS before each decision, final_N after the last one).

    ``reads`` names the columns it needs from the policy's own forward pass. With ``hidden_NSH``, ``value`` receives the policy's
    last hidden states; the critic decides whether to backpropagate into that trunk or detach them.
    """

    reads: ClassVar[frozenset[str]] = frozenset()

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

    def present(
        self, decisions: AbstractDecisions, hidden_NSH: Float[Tensor, "N S H"] | None = None
    ) -> Float[Tensor, "N S M"]:
        """``members`` before each decision alone, which is all that a loss reads."""
        return self.members(decisions, hidden_NSH)[0]

    def combine(self, value_M: Float[Tensor, "*shape M"]) -> Float[Tensor, "*shape"]:
        """Combines the members' values into one: by default the last."""
        return value_M[..., -1]

    def columns(self, batch: TrainBatch) -> Mapping[str, Tensor]:
        """Its values for the states of a batch before any update on it; the batch has what it ``reads``.

        ``value_NS``, ``bootstrap_N``, and of the members ``value_NSM`` and, one by one, ``bootstrap/0``, ``bootstrap/1``, ... [N].
        """
        assert batch.decisions is not None
        value_NSM, final_NM = self.members(batch.decisions, batch.hidden_NSH)
        values = {"value_NS": self.combine(value_NSM), "bootstrap_N": self.combine(final_NM), "value_NSM": value_NSM}
        return values | {f"bootstrap/{m}": final_N for m, final_N in enumerate(final_NM.T)}

    def observe(self, batch: TrainBatch) -> None:
        """Called with each batch after its last update; fits a critic that no loss trains."""
        return None


class AbstractCriticSpec(AbstractPart, ABC):
    """The saved, frozen configuration of a critic; ``load`` makes the live one (weights from the run's generator)."""

    fitted: ClassVar[bool] = False  # in ``observe``, and by no loss

    @abstractmethod
    def load(self, seed: int) -> AbstractCritic: ...
