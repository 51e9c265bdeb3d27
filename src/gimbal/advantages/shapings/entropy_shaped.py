"""Advantages raised where the policy was unsure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractAdvantage
from gimbal.advantages.shapings.novelty_sharpened import NoveltySharpened
from gimbal.composition import ENTROPY, Advice, Composition, Verdict
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class EntropyShaped(AbstractAdvantage):
    """Softens penalties and raises gains on uncertain decisions (MSSR, arXiv:2512.18215; earlier arXiv:2506.14758).

    A' = A + min(strength H, |A| / cap), H the entropy of the policy's distribution before the update, without gradient.

    - ``strength`` = 0, or ``cap`` = inf: A.
    - A = 0: 0.
    - ``cap`` > 1: the sign of A' is that of A.

    Published: ``strength`` 0.4, ``cap`` 2.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS", "entropy_NS"})

    strength: float = 0.4
    cap: float = 2.0

    def __post_init__(self) -> None:
        if self.strength < 0 or self.cap <= 0:
            raise ValueError(
                f"EntropyShaped has strength {self.strength}, 0 or above, and cap {self.cap}, above 0 (above 1 to keep signs)"
            )

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        advantage_NS, entropy_NS = batch.column("advantage_NS", self), batch.column("entropy_NS", self).detach()
        # A density's entropy may be negative: there it adds nothing.
        bonus_NS = (self.strength * entropy_NS.clamp(min=0)).minimum(advantage_NS.abs() / self.cap)
        return (advantage_NS + bonus_NS) * batch.mask_NS

    def effects(self) -> frozenset[str]:
        return frozenset({ENTROPY})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(NoveltySharpened):
            yield Advice("EntropyShaped and NoveltySharpened both raise unlikely decisions, with two separate caps")
