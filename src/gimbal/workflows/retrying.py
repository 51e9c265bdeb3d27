"""Attempts that went wrong are taken up again where they did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from gimbal.composition import Advice, Composition, Verdict
from gimbal.dataflow.filters.step_turns import decision_of
from gimbal.records import Drop, Episode, Group, Rollout
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.working_steps import WorkingSteps, step_spans
from gimbal.workflows.base import AbstractWorkflow, Attempt, Steps
from gimbal.workflows.over_rows import AbstractOverRows


@dataclass(frozen=True, kw_only=True)
class Retrying(AbstractOverRows, AbstractWorkflow):
    """The first ``firsts`` samples of a group are attempts, and each further one takes up one of these before its first wrong step.

    Reflect-then-retry of R3L (arXiv:2601.03715), and the restart at the first error of SCOPE (arXiv:2602.24110) without a guide. Sample
    i takes up sample i mod ``firsts`` once that has ended: ``right`` counts its leading right steps, and what stands before the next
    one is kept. Where every step is right, or the first one is wrong, or there is none, it is drawn from the prompt. With ``pivotal``
    what the two share trains in neither of them, for it offers no contrast; else it trains in the attempt. ``inside`` drives each row.

    How its log-probabilities are to be read: each decision that counts is drawn from the policy given what stands before it, with the
    policy's own log-probability, so weights by decision or over what counts of a row are right. What was kept was chosen by how its
    attempt went on; it is masked in the retry, and no weight could make the whole row a draw from the policy. So figures of how
    often a task is solved (pass rates, curricula) are of attempts and retries together, and no evaluation may be drawn by it.

    - ``firsts`` of a group's size or more: ``inside`` as it is.
    - no step ever wrong: independent samples.

    Confidence: partial; the masks, and half of a group as retries, are verified; ours: errors are found by ``right`` and not by the
    policy's own reflection, and the retry is given no words of guidance, so that it is on-policy where R3L's is not.
    """

    biased: ClassVar[str] = "Retrying takes wrong answers up again"

    firsts: int = 4
    pivotal: bool = True
    right: AbstractReward = WorkingSteps(measure="right", separator=" ", chained=True)
    separator: str = " "
    opening: str = "<think>"
    closing: str = "</think>"

    def __post_init__(self) -> None:
        if self.firsts < 1:
            raise ValueError(f"Retrying.firsts is {self.firsts}; it counts first attempts of a group, at least 1")
        super().__post_init__()

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        run = whole.run
        if run.num_generations <= self.firsts:
            yield Advice(f"of {run.num_generations} samples {self.firsts} are first attempts, so nothing is retried")

    def __call__(self, attempt: Attempt) -> Steps:
        outcomes: dict[int, Episode | Drop] = {}
        count = len(attempt.samples)
        yield [self._line(attempt, place, outcomes) for place in range(min(self.firsts, count))]
        return [outcomes[sample] for sample in attempt.samples]

    def _line(self, attempt: Attempt, place: int, outcomes: dict[int, Episode | Drop]) -> Steps:
        """A first attempt, and all that take it up again."""
        sample = attempt.samples[place]
        first = outcomes[sample] = yield from self.inside(attempt.of(sample))
        at = self._kept(first)
        fork = (first.last, at) if at and isinstance(first, Episode) else None
        retries = [attempt.samples[other] for other in range(place + self.firsts, len(attempt.samples), self.firsts)]
        answers = yield [self.inside(attempt.of(retry, fork)) for retry in retries]
        outcomes.update(zip(retries, answers, strict=True))
        if self.pivotal and fork is not None and any(isinstance(answer, Episode) for answer in answers):
            outcomes[sample] = replace(first, rows=(*first.rows[:-1], _masked(first.last, at)))

    def _kept(self, outcome: Episode | Drop) -> int:
        """How many first decisions stand before the first wrong step; 0 where there is none, or nothing before it."""
        if isinstance(outcome, Drop) or outcome.error:
            return 0
        row = outcome.last
        spans = step_spans(row.text, self.opening, self.closing, self.separator)
        (leading,) = self.right(Group.of(0, row.task, [row]))
        right = int(leading or 0)
        at = decision_of(row, spans[right][0]) if 0 < right < len(spans) else 0
        # A row of which nothing would train is no attempt: its last decision always does.
        return at if bool(row.mask_S[at:].any()) else 0


def _masked(row: Rollout, first: int) -> Rollout:
    return replace(row, mask_S=row.mask_S & (torch.arange(row.length) >= first))
