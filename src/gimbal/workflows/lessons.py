"""Half of the attempts read a lesson, which a second role writes from past attempts and is trained by what it was worth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gimbal.advantages.estimators.seat_centered import SeatCentered
from gimbal.composition import Advice, Composition, Refusal, Verdict
from gimbal.records import Episode, Rollout, Task
from gimbal.rewards.asking import asked_by
from gimbal.workflows.base import PAUSED, AbstractWorkflow, Attempt, Draw, Encode, Steps
from gimbal.workflows.case_memory import CaseMemory

EXTRACTOR, GUIDED, ALONE = "extractor", "guided", "alone"


@dataclass(frozen=True, kw_only=True)
class Lessons(AbstractWorkflow):
    """The role "extractor" writes a lesson m from past attempts c, which the role "guided" reads; the role "alone" reads none
    (Complementary RL, 2026).

    y ~ pi_guided(. | m, x),  m ~ pi_extractor(. | c, x);    or y ~ pi_alone(. | x)

    In a group the share ``guided`` of the attempts are guided. Both rows of a guided attempt earn its score, so a lesson is worth what
    was done with it. Guided attempts must be compared with guided ones, and others with others: ``advantage=SeatCentered(scale=True)``
    does that. A baseline over both would reward every lesson, whatever it says, while lessons help on average.

    ``cases`` is the store of attempts: which are read and how they are written before the prompt (CaseMemory). An extractor's lesson
    ends at one of ``stop``, or as any row does; ``template`` is the guided prompt, with {lesson}, {prompt} and the task's columns
    filled in. Attempts without a past one to read are alone.

    By default all roles share the policy; ``separate={"extractor": SeparateWeights()}`` of the run trains two models.

    - ``guided`` = 0, or an empty store: SingleTurn.
    - an extractor with ``learning_rate`` 0: a store that is read but not learned to read.

    Published: lessons are written once and kept in a bank that the extractor edits and merges, and a mean over the batch is the
    extractor's baseline. Ours: each attempt has its lesson written when it begins, so no lesson is older than the attempt. Confidence:
    partial; both objectives and the split are from the paper.
    """

    cases: CaseMemory = CaseMemory()
    guided: float = 0.5
    template: str = "{lesson}\n{prompt}"
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.guided <= 1:
            raise ValueError(f"Lessons.guided is {self.guided}; it is the share of a group's attempts, 0 to 1")
        if "{lesson}" not in self.template:
            raise ValueError(f"Lessons.template is {self.template!r}; it must have {{lesson}}, and usually {{prompt}}")

    @property
    def players(self) -> frozenset[str]:
        return frozenset({EXTRACTOR, GUIDED, ALONE})

    @property
    def at_once(self) -> int | None:
        return self.cases.at_once

    def accepts(self, task: Task) -> None:
        self.cases.accepts(task)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from self.cases.fits(whole)
        size = whole.run.num_generations
        guided = sum(map(self._guides, range(size)))
        if not 0 < guided < size:
            return
        if not whole.has(SeatCentered):
            yield Advice(
                "guided attempts and others share a baseline, which rewards any lesson while lessons help on average: "
                "advantage=SeatCentered(scale=true)"
            )
        elif guided == 1 or size - guided == 1:
            yield Refusal(
                f"Lessons guides {guided} of {size} attempts, and SeatCentered compares each kind with its own, so that one of a kind "
                "learns nothing: raise num_generations, or set workflow.guided so that each kind has two"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        if attempt.fork is not None and attempt.fork[0].role != EXTRACTOR:  # its lesson counts where it was drawn
            return Episode.of((yield attempt.begin()))
        begin, most = attempt.begin(stop=self.stop), attempt.sampling.max_length
        if isinstance(begin, Draw):
            cases = (yield from self.cases.fitting(attempt)) if self._guides(attempt.sample) else []
            if cases:  # a lesson may be as long as there is room for it before the prompt
                unwritten = yield Encode(task=asked_by(self.template, attempt.task, {"lesson": ""}))
                most = min(most, unwritten.room - most)
            if not cases or most < 1:
                return Episode.of((yield replace(begin, stop=(), role=ALONE)))
            begin = replace(begin, role=EXTRACTOR, task=self.cases.shown(attempt.task, cases), most=most)
        written = yield begin
        if written.stop == PAUSED:
            written = replace(written, stop="length" if written.length == most else "stop")
        task = asked_by(self.template, attempt.task, {"lesson": written.text})
        acted = yield Draw(task=task, sample=attempt.sample, sampling=attempt.sampling, role=GUIDED)
        return Episode(rows=(written, acted))

    def _guides(self, sample: int) -> bool:
        """Spread over the samples of a group; the first one is guided where any is."""
        return math.ceil(self.guided * (sample + 1)) > math.ceil(self.guided * sample)

    def begin(self) -> Mapping[str, Any]:
        return self.cases.begin()

    def remember(self, memory: Mapping[str, Any], attempt: Attempt, rows: Sequence[Rollout]) -> Mapping[str, Any]:
        """With these attempts in the store; the retrieval learns from those that were guided."""
        read = {row.sample: row.task for row in rows if row.role == EXTRACTOR}
        guided = [replace(row, task=read.get(row.sample, row.task)) for row in rows if row.role == GUIDED]
        memory = self.cases.remember(memory, attempt, guided)
        return self.cases.remember(memory, attempt, [row for row in rows if row.role == ALONE])
