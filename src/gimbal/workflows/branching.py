"""Groups that grow as trees: a row may branch off another one, and no shared decision is sampled or trained on twice."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gimbal.composition import Advice, Composition, Verdict
from gimbal.records import Drop, Episode, Rollout
from gimbal.workflows.base import AbstractWorkflow, Attempt, Steps
from gimbal.workflows.over_rows import AbstractOverRows


@dataclass(frozen=True, kw_only=True)
class Branching(AbstractOverRows, AbstractWorkflow):
    """Samples the first ``trunks`` rollouts of a group from the prompt; the others branch off a row where it was least certain.

    Sample i branches off sample i mod trunks once that has ended, before one of its ``places`` decisions with the lowest
    log-probability, in turn. With ``deep`` each row instead has up to ``places`` branches of its own, in sample order, so branches can
    have branches. Shared decisions do not count in the branch: each decision counts in the row that sampled it. A branch whose trunk
    was lost is sampled from the prompt. ``inside`` drives each row from where it begins.

    - ``trunks`` at least the group's size: ``inside`` unchanged.

    After TreeRL's EPTree (arXiv:2506.11902), which also splits where the policy is uncertain and credits each step by the leaves below
    it. Confidence: partial; ours: one round of splits, the measure of uncertainty, and both counts. With advantages of whole rollouts
    the early decisions of a trunk are credited only by its own score; ``LeafMean`` (recipe ``treerl``) credits them by all branches.
    """

    biased: ClassVar[str] = "Branching splits rollouts where the policy was uncertain"

    trunks: int = 2
    places: int = 2
    deep: bool = False

    def __post_init__(self) -> None:
        if self.trunks < 1 or self.places < 1:
            raise ValueError(
                f"Branching has {self.trunks} trunks and {self.places} places to split at; both must be at least 1"
            )
        super().__post_init__()

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        if self.trunks >= (size := whole.run.num_generations):
            yield Advice(
                f"Branching has {self.trunks} trunks, and num_generations is {size}, so nothing branches unless a budget or a column "
                f"makes groups larger: workflow.trunks={max(1, size // 2)}, or workflow='SingleTurn()'"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        outcomes: dict[int, Episode | Drop] = {}
        roots = range(min(self.trunks, len(attempt.samples)))
        yield [self._tree(attempt, place, None, outcomes) for place in roots]
        return [outcomes[sample] for sample in attempt.samples]

    def _tree(
        self, attempt: Attempt, place: int, fork: tuple[Rollout, int] | None, outcomes: dict[int, Episode | Drop]
    ) -> Steps:
        """The row of one sample, and all its branches as soon as it has ended."""
        sample = attempt.samples[place]
        outcome = outcomes[sample] = yield from self.inside(attempt.of(sample, fork))
        children = self._children(place, len(attempt.samples))
        splits = [self._split(outcome, number) for number in range(len(children))]
        pairs = zip(children, splits, strict=True)
        yield [self._tree(attempt, child, split, outcomes) for child, split in pairs]

    def _children(self, place: int, count: int) -> range:
        """The positions of the row's branches."""
        if self.deep:
            first = self.trunks + place * self.places
            return range(first, max(first, min(first + self.places, count)))
        return range(place + self.trunks, count, self.trunks) if place < self.trunks else range(0)

    def _split(self, outcome: Episode | Drop, number: int) -> tuple[Rollout, int] | None:
        """Where the ``number``-th branch splits off; None if it begins at the prompt."""
        if isinstance(outcome, Drop) or outcome.error:
            return None
        row = outcome.last
        uncertain_S = row.behavior_S.masked_fill(~row.mask_S, math.inf)  # only where it has decided something itself
        places = uncertain_S.argsort(stable=True)[: min(self.places, int(row.mask_S.sum()))]
        at = int(places[number % len(places)]) if len(places) else 0
        return (row, at) if at else None
