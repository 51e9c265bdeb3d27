"""Groups in whose place a better one comes."""

from __future__ import annotations

from dataclasses import dataclass

from gimbal.composition import SUPERSEDES
from gimbal.dataflow.base import AbstractFilter
from gimbal.dataflow.curricula.hinted import comes_again
from gimbal.records import Drop, Group


@dataclass(frozen=True, kw_only=True)
class Superseded(AbstractFilter):
    """Drops a failed group whose task curricula.Hinted will repeat with a longer hint (GHPO, arXiv:2507.10628).

    It stands before other filters, so that they judge what stays; ``drops/hinted`` counts what the hints cost in groups.

    Confidence: verified.
    """

    def __call__(self, group: Group) -> Group | Drop:
        return Drop("hinted") if comes_again(group) else group

    def effects(self) -> frozenset[str]:
        return frozenset({SUPERSEDES})
