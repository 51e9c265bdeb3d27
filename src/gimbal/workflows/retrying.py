"""Retries failed attempts from their first wrong step."""

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
    """The first ``firsts`` samples of a group are attempts; each further one retries one of them from before its first wrong step.

    Reflect-then-retry of R3L (arXiv:2601.03715), and the restart at the first error of SCOPE (arXiv:2602.24110) without a guide. Sample
    i retries sample i mod ``firsts`` once that has ended: ``right`` counts its leading right steps, and the text before the next step
    is kept. If every step is right, the first one is wrong, or there is none, it is sampled from the prompt. With ``pivotal`` the
    shared prefix trains in neither of them, since it offers no contrast; otherwise it trains in the attempt. ``inside`` drives each
    row.

    Log-probabilities: each counted decision is sampled from the policy given its context, with the policy's own log-probability, so
    weights per decision, or over the counted part of a row, are right. The kept prefix was chosen by how its attempt continued; it is
    masked in the retry, and no weight could make the whole row a sample of the policy. So solve rates (pass rates, curricula) cover
    attempts and retries together, and evaluations must not use this workflow.

    - ``firsts`` at least the group's size: ``inside`` unchanged.
    - no step ever wrong: independent samples.

    Confidence: partial; the masks, and half of a group as retries, are verified; ours: ``right`` finds the errors instead of the
    policy's own reflection, and the retry gets no guidance text, so it is on-policy, unlike R3L's.
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
            yield Advice(
                f"all of the {run.num_generations} samples are first attempts ({self.firsts}), so nothing is retried"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        outcomes: dict[int, Episode | Drop] = {}
        count = len(attempt.samples)
        yield [self._line(attempt, place, outcomes) for place in range(min(self.firsts, count))]
        return [outcomes[sample] for sample in attempt.samples]

    def _line(self, attempt: Attempt, place: int, outcomes: dict[int, Episode | Drop]) -> Steps:
        """A first attempt, and all its retries."""
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
        """The number of decisions before the first wrong step; 0 if there is no such step, or nothing before it."""
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
