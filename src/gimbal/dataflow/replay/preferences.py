"""Which of the decisions that are held are drawn again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True, kw_only=True)
class AbstractPriority(ABC):
    """A weight for each decision that is held; they are drawn in proportion to it, with replacement. ``by_error``: it reads how far off
    their values were when they were drawn last, and their losses are corrected for how often they are drawn."""

    by_error: ClassVar[bool] = False

    @abstractmethod
    def weights(self, held: int, error_A: Float[np.ndarray, " A"] | None = None) -> Float[np.ndarray, " A"] | None:
        """Of the newest, the one before it, and so on to the oldest of ``held``; None: all alike."""

    def importance(self, ratio_MK: Float[np.ndarray, "M K"]) -> Float[np.ndarray, "M K"]:
        """What a row counts in the loss of its move, by how many times likelier than by chance it was drawn."""
        return np.ones_like(ratio_MK)


@dataclass(frozen=True, kw_only=True)
class Uniform(AbstractPriority):
    """Any as likely as any other."""

    def weights(self, held: int, error_A: Float[np.ndarray, " A"] | None = None) -> None:
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

    def weights(self, held: int, error_A: Float[np.ndarray, " A"] | None = None) -> Float[np.ndarray, " A"]:
        return np.maximum(self.least, 1 - np.arange(held) / self.span)


@dataclass(frozen=True, kw_only=True)
class Prioritized(AbstractPriority):
    """w = (|y - Q| + ``least``)^``alpha``, as it was when the decision was drawn last (prioritized replay, arXiv:1511.05952).

    What has not been drawn counts as far off as the worst that is held. A loss of values weighs a row that is drawn with probability P
    by (N P)^-``beta``, N being how many are held, in units of the largest such weight of its move; a policy's loss does not.

    - ``alpha`` = 0: Uniform, bit for bit.
    - ``beta`` = 1: what a loss is on average does not depend on ``alpha``, up to those units. ``beta`` = 0: no correction.

    Published: alpha .6, beta from .4 to 1 over the run.

    Confidence: verified; ours: ``beta`` stays, errors are those at the end of the learner's step, and draws are independent.
    """

    by_error: ClassVar[bool] = True

    alpha: float = 0.6
    beta: float = 0.4
    least: float = 1e-3

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 10 or not 0 <= self.beta <= 1 or not self.least > 0:
            raise ValueError(
                f"Prioritized has alpha {self.alpha} (a power, from 0 to 10), beta {self.beta} (from 0 to 1) and least {self.least} "
                "(an error, above 0)"
            )

    def weights(self, held: int, error_A: Float[np.ndarray, " A"] | None = None) -> Float[np.ndarray, " A"] | None:
        assert error_A is not None, "a store keeps errors for those that read them"
        return None if self.alpha == 0 else (error_A + self.least) ** self.alpha

    def importance(self, ratio_MK: Float[np.ndarray, "M K"]) -> Float[np.ndarray, "M K"]:
        weight_MK = ratio_MK**-self.beta
        return weight_MK / weight_MK.max(1, keepdims=True)
