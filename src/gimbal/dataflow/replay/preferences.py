"""Which of the decisions that are held are drawn again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, kw_only=True)
class AbstractPriority(ABC):
    """A weight for each decision that is held; they are drawn in proportion to it, with replacement."""

    @abstractmethod
    def weights(self, held: int) -> Float[np.ndarray, " A"] | None:
        """Of the newest, the one before it, and so on to the oldest of ``held``; None: all alike."""


@dataclass(frozen=True, kw_only=True)
class Uniform(AbstractPriority):
    """Any as likely as any other."""

    def weights(self, held: int) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class AgeDecay(AbstractPriority):
    """w = max(``least``, 1 - age / ``span``), the age counted in decisions that came in since (Sample Weight Decay, arXiv:2604.01913).

    In a buffer that grows, uniform draws give what is new a share that falls as 1 / its size; so does the gradient of a critic after
    its targets have moved. With weights that fall with age the newest decision keeps a chance of about 2 / ``span``. No loss is
    corrected for it.

    - ``span`` = inf, or ``least`` = 1: Uniform.

    Confidence: partial (the paper's text; ``least`` is ours).
    """

    span: float = 10_000.0
    least: float = 0.1

    def __post_init__(self) -> None:
        if not self.span > 0 or not 0 < self.least <= 1:
            raise ValueError(
                f"AgeDecay has span {self.span} (decisions, above 0) and least {self.least} (a weight, above 0 and at most 1)"
            )

    def weights(self, held: int) -> Float[np.ndarray, " A"]:
        return np.maximum(self.least, 1 - np.arange(held) / self.span)
