"""A penalty on decisions where sampler and trainer disagree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage
from gimbal.composition import AT_SAMPLING, Advice, Composition, Verdict
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class DiscrepancyPenalty(AbstractAdvantage):
    """Penalises decisions where sampler and trainer disagree (DCMDP / DC-GRPO, arXiv:2606.08779).

    A' = A - strength max(delta - threshold, 0),  delta = |exp(proximal) - exp(behavior)|, in probabilities. ``strength`` is the
    Lagrange multiplier, which controllers.Lagrangian moves by the batch's mean delta.

    - ``strength`` = 0: A.
    - behavior = proximal: A.

    Made for probabilities; a density's exponential is cut at exp(20), so that it stays finite.

    Confidence: partial; the form and the dual step are from secondary sources; ours: the ``threshold`` (published: 0).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS", "proximal_NS", "behavior_NS"})

    strength: float = 0.1
    threshold: float = 0.0

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        proximal_NS, behavior_NS = (
            batch.column(name, self).clamp(max=ops.LOG_RATIO_LIMIT).exp() for name in ("proximal_NS", "behavior_NS")
        )
        excess_NS = ((proximal_NS - behavior_NS).abs() - self.threshold).clamp(min=0)
        return (batch.column("advantage_NS", self) - self.strength * excess_NS) * batch.mask_NS

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.run.max_staleness > 0 and not whole.doing(AT_SAMPLING):
            yield Advice(
                "DiscrepancyPenalty on stale data also penalises what was learned since, not only the engine gap: set "
                "anchor=SamplingVersion(window=...), or max_staleness=0"
            )
