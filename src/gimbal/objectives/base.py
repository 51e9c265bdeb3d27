"""What a surrogate, a regulariser and a discrepancy weight are.

Ratios are consumed at most once. With r = exp(logprob - proximal) ("update") and w = exp(proximal - behavior)
("discrepancy"), the total ratio is r w. Each part declares in ``consumes`` which of the two it uses (a part on the total
ratio names both); a recipe in which two parts consume the same one is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.records import Terms, TrainBatch

UPDATE, DISCREPANCY = "update", "discrepancy"


class AbstractObjective(ABC):
    """A loss of each decision: (logprob_NS with gradient, batch) -> Terms. A frozen dataclass of its coefficients.

    ``needs`` names the optional columns of the batch that it reads (``proximal_NS``, ``reference_NS``, ``entropy_NS``, ...): the
    learner computes exactly the columns that somebody needs. ``mask_NS`` is always there.
    """

    consumes: ClassVar[frozenset[str]] = frozenset()
    needs: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms: ...


class AbstractCorrection(ABC):
    """A detached weight of each decision for the gap between sampler and trainer; 0 masks the decision.

    The weight multiplies the loss of the objective (never that of regularisers). It is computed once over the global minibatch,
    from constants, before micro-batching.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({DISCREPANCY})
    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "behavior_NS"})

    @abstractmethod
    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]: ...
