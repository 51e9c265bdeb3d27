"""An entropy bonus where the members of a critic agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.composition import ENTROPY, Composition, Verdict
from gimbal.objectives.base import AbstractObjective, check_share
from gimbal.objectives.masks.disagreement import extreme, one_critic
from gimbal.objectives.regularisers.entropy_bonus import EntropyBonus
from gimbal.records import Terms, TrainBatch

SETTLED = "settled"  # fact: 1 on decisions whose entropy is rewarded


@dataclass(frozen=True, kw_only=True)
class AgreementEntropyBonus(AbstractObjective):
    """An entropy bonus that skips decisions where the critics disagree (ASYPPO, arXiv:2510.01656).

    loss = -coef H, but 0 on the floor(share n) of the minibatch's n decisions with the largest deviation of V_m over the members m.

    - ``share`` = 0: EntropyBonus; ``share`` = 1: only the metric.

    Confidence: partial; ours: ``coef``, which is not published.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"entropy_NS", "value_NSM", "behavior_NS"})

    coef: float = 1e-3
    share: float = 0.2

    def __post_init__(self) -> None:
        check_share(self, self.share)

    def survey(self, batch: TrainBatch) -> Mapping[str, Tensor]:
        return {SETTLED: (batch.mask_NS & ~extreme(batch, self, self.share, -1)).float()}

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        batch = self.surveyed(logprob_NS, batch, SETTLED)
        terms = EntropyBonus(coef=self.coef)(logprob_NS, batch)
        return replace(terms, loss_NS=terms.loss_NS * batch.column(SETTLED, self))

    def effects(self) -> frozenset[str]:
        return frozenset({ENTROPY})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from one_critic(whole)
