"""What a policy and its evaluation are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from jaxtyping import Float
from torch import Tensor, nn

from gimbal.records import AbstractDecisions


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Log-probabilities of recorded decisions under the policy, with gradient; entropy of each distribution if asked for."""

    logprob_NS: Float[Tensor, "N S"]
    entropy_NS: Float[Tensor, "N S"] | None = None


class AbstractPolicy(nn.Module, ABC):
    """A torch module that evaluates decisions. How it samples is the business of an engine of its family."""

    @abstractmethod
    def evaluate(
        self,
        decisions: AbstractDecisions,
        *,
        temperature: float = 1.0,
        entropy: bool = False,
        checkpointing: bool = False,
    ) -> Evaluation:
        """Padding positions hold 0. ``temperature`` is the one the decisions were sampled at."""

    @abstractmethod
    def pieces(self, decisions: AbstractDecisions) -> list[str]:
        """Each decision of the first row as a person would read it."""

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Into the layout that the spec's ``model`` loads from."""


class AbstractPolicySpec(ABC):
    """The saved, frozen choice of a policy; ``load`` makes the live one, in evaluation mode."""

    @abstractmethod
    def load(self, seed: int = 0) -> AbstractPolicy:
        """``seed`` draws the first weights of a policy that is not read from disk."""

    @abstractmethod
    def at(self, directory: Path) -> AbstractPolicySpec:
        """The same choice with the weights saved in this directory."""
