"""Groups in whose place a better one comes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gimbal.composition import SUPERSEDES, Composition, Refusal, Verdict
from gimbal.dataflow.base import AbstractFilter
from gimbal.dataflow.curricula.hinted import Hinted, comes_again
from gimbal.records import Drop, Group


@dataclass(frozen=True, kw_only=True)
class Superseded(AbstractFilter):
    """Drops a failed group whose task curricula.Hinted will repeat with a longer hint (GHPO, arXiv:2507.10628).

    It stands before other filters, so that they judge what stays; ``drops/hinted`` counts what the hints cost in groups.

    Confidence: verified.
    """

    def __call__(self, group: Group) -> Group | Drop:
        return Drop("hinted") if comes_again(group) else group

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        # A curriculum of the user's own may give such tasks too.
        if not whole.has(Hinted) and type(whole.run.curriculum).__module__.startswith("gimbal."):
            yield Refusal(
                f"Superseded drops nothing: only curriculum='Hinted()' asks a failed task again, and this run has "
                f"{type(whole.run.curriculum).__name__}; take Superseded out of filters, or set that curriculum"
            )

    def effects(self) -> frozenset[str]:
        return frozenset({SUPERSEDES})
