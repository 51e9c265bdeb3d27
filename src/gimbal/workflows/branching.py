"""Groups that grow as trees: a row may split off another one, and no shared decision is drawn or trained on twice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from gimbal.records import Drop, Episode, Rollout
from gimbal.workflows.base import AbstractWorkflow, Attempt, Steps
from gimbal.workflows.over_rows import AbstractOverRows


@dataclass(frozen=True, kw_only=True)
class Branching(AbstractOverRows, AbstractWorkflow):
    """Samples the first ``trunks`` rollouts of a group from the prompt; each other one forks off a row where that was least certain.

    Sample i splits off sample i mod trunks once that has ended, before one of its ``places`` decisions of least log-probability, in
    turn. With ``deep`` each row instead has up to ``places`` branches of its own, in the order of samples, so that branches have
    branches. What a branch took over is not masked in: each decision counts in the row that drew it. A branch whose trunk came to
    nothing is drawn from the prompt. ``inside`` drives each row from where it begins.

    - ``trunks`` of a group's size or more: ``inside`` as it is.

    After TreeRL's EPTree (arXiv:2506.11902), which also splits where the policy is uncertain and pays each step by the leaves below
    it. Confidence: partial; ours: one round of splits, the measure of uncertainty, and both counts. With advantages of whole rollouts
    the early decisions of a trunk are paid by its own score alone; ``LeafMean`` (recipe ``treerl``) pays them by all that split off.
    """

    biased: ClassVar[str] = "Branching splits rollouts where the policy was uncertain"

    trunks: int = 2
    places: int = 2
    deep: bool = False

    def __post_init__(self) -> None:
        if self.trunks < 1 or self.places < 1:
            raise ValueError(
                f"Branching has {self.trunks} trunks and {self.places} places to split off at; let both be at least 1"
            )
        super().__post_init__()

    def __call__(self, attempt: Attempt) -> Steps:
        outcomes: dict[int, Episode | Drop] = {}
        roots = range(min(self.trunks, len(attempt.samples)))
        yield [self._tree(attempt, place, None, outcomes) for place in roots]
        return [outcomes[sample] for sample in attempt.samples]

    def _tree(
        self, attempt: Attempt, place: int, fork: tuple[Rollout, int] | None, outcomes: dict[int, Episode | Drop]
    ) -> Steps:
        """The row of one sample, and all that splits off it as soon as it has ended."""
        sample = attempt.samples[place]
        outcome = outcomes[sample] = yield from self.inside(attempt.of(sample, fork))
        children = self._children(place, len(attempt.samples))
        splits = [self._split(outcome, number) for number in range(len(children))]
        pairs = zip(children, splits, strict=True)
        yield [self._tree(attempt, child, split, outcomes) for child, split in pairs]

    def _children(self, place: int, count: int) -> range:
        """Who splits off the row at this place, as places."""
        if self.deep:
            first = self.trunks + place * self.places
            return range(first, max(first, min(first + self.places, count)))
        return range(place + self.trunks, count, self.trunks) if place < self.trunks else range(0)

    def _split(self, outcome: Episode | Drop, number: int) -> tuple[Rollout, int] | None:
        """Where the ``number``-th branch leaves it; None where it begins at the prompt."""
        if isinstance(outcome, Drop) or outcome.error:
            return None
        row = outcome.last
        uncertain_S = row.behavior_S.masked_fill(~row.mask_S, math.inf)  # only where it has decided something itself
        places = uncertain_S.argsort(stable=True)[: min(self.places, int(row.mask_S.sum()))]
        at = int(places[number % len(places)]) if len(places) else 0
        return (row, at) if at else None
