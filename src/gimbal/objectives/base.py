"""What a surrogate, a regulariser, a discrepancy weight and a mask are.

Ratios are consumed at most once. With r = exp(logprob - proximal) ("update") and w = exp(proximal - behavior)
("discrepancy"), the total ratio is r w. Each part declares in ``consumes`` which of the two it uses (a part on the total
ratio names both); a recipe in which two parts consume the same one is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from gimbal.composition import AbstractPart
from gimbal.records import Terms, TrainBatch

UPDATE, DISCREPANCY = "update", "discrepancy"


class AbstractObjective(AbstractPart, ABC):
    """A loss of each decision: (logprob_NS with gradient, batch) -> Terms. A frozen dataclass of its coefficients.

    ``needs`` names the optional columns of the batch that it reads (``proximal_NS``, ``reference_NS``, ``entropy_NS``, ...): the
    learner computes exactly the columns that are needed. ``mask_NS`` is always there.

    It is called on one micro-batch at a time. ``survey`` runs first and collects what it needs from the whole minibatch.
    """

    consumes: ClassVar[frozenset[str]] = frozenset()
    needs: ClassVar[frozenset[str]] = frozenset()
    whole_groups: ClassVar[bool] = False  # whether it compares rows of a group, so that no micro-batch may split one

    @abstractmethod
    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms: ...

    def survey(self, batch: TrainBatch) -> Mapping[str, Tensor]:
        """Facts for ``batch.facts`` ([N] or [N, S]) from the whole minibatch, without gradient; ``current_NS`` is there if needed."""
        return {}

    def stages(self, batch: TrainBatch) -> Iterable[Mapping[str, Tensor]]:
        """The updates that one minibatch takes, in order, each by the facts that tell it from the others: by default one update."""
        return ({},)

    def surveyed(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch, fact: str) -> TrainBatch:
        """The batch with the facts of ``survey``. In a loop that takes none, the batch at hand is the whole minibatch."""
        if fact in batch.facts:
            return batch
        return batch.with_columns(self.survey(replace(batch, current_NS=logprob_NS.detach())))

    def counted(self, batch: TrainBatch) -> Bool[Tensor, "N S"]:
        """The decisions that its loss is about, and its mean over. For losses on what the policy did not draw."""
        return batch.mask_NS


class AbstractCorrection(AbstractPart, ABC):
    """A detached weight of each decision for the gap between sampler and trainer; 0 masks the decision.

    The weight multiplies the objective's loss (never the regularisers'). It is computed once over the global minibatch,
    from constants, before micro-batching.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({DISCREPANCY})
    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "behavior_NS"})

    @abstractmethod
    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]: ...


@dataclass(frozen=True, kw_only=True)
class AbstractMask(AbstractPart, ABC):
    """Selects the decisions that train the policy: a whole minibatch -> keep_NS, without gradient. A frozen dataclass.

    Called after all statistics are taken. Decisions that are not kept leave the objective's loss but stay in its
    denominator; with ``renormalise`` they leave the denominator and the regularisers too.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    renormalise: bool = False

    @abstractmethod
    def __call__(self, batch: TrainBatch) -> Bool[Tensor, "N S"]: ...


def check_share(part: object, share: float) -> None:
    if not 0 <= share <= 1:
        raise ValueError(f"{type(part).__name__}.share is {share}; it must be a share of the decisions, 0 (none) to 1")
