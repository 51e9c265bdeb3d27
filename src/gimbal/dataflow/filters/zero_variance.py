"""Groups that teach nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gimbal.advantages.estimators.signed_outcome import SignedOutcome
from gimbal.advantages.reward_shaping.relative_length import RelativeLength
from gimbal.composition import Advice, Composition, Verdict
from gimbal.dataflow.base import AbstractFilter
from gimbal.records import Drop, Group


@dataclass(frozen=True, kw_only=True)
class ZeroVariance(AbstractFilter):
    """Drops groups whose scores differ by at most ``eps``: their group-relative advantages are all zero.

    Dynamic sampling of DAPO (arXiv:2503.14476): the place that a drop frees is refilled by a group of another task,
    so a step trains on full batches of groups with a gradient. A group of one is dropped always; eps = 0 drops only
    equal scores.
    """

    eps: float = 0.0

    def __post_init__(self) -> None:
        if self.eps < 0:
            raise ValueError(f"ZeroVariance.eps is {self.eps}; it must be a difference of scores, 0 or above")

    def __call__(self, group: Group) -> Group | Drop:
        score_G = group.score_G
        return Drop("zero_variance") if float(score_G.max() - score_G.min()) <= self.eps else group

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(SignedOutcome):
            yield Advice("SignedOutcome learns most from groups without a success, but ZeroVariance drops them")
        if whole.has(RelativeLength):
            yield Advice(
                "RelativeLength separates answers by length, but ZeroVariance first drops groups that differ only in length"
            )
