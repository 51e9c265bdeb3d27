"""Episodes copied from the data: each task has its completion. With ``Likelihood`` as objective this is supervised training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.objectives.base import AbstractCorrection
from gimbal.records import Episode, Task, is_chat
from gimbal.rewards.recorded import chosen
from gimbal.workflows.base import AbstractWorkflow, Attempt, Steps, Write


@dataclass(frozen=True, kw_only=True)
class Demonstrated(AbstractWorkflow):
    """Copies completions from ``task.columns["completion"]``, followed by the end-of-text token if they ``end``.

    A completion is text, or an assistant's message with calls of tools, which the model's chat template writes. A list has one per
    sample, for offline data that compares several (rewards.Recorded has their scores). Nothing is sampled,
    so ``behavior`` is 0 (certainty), and engine=Offline() is enough.
    """

    end: bool = True

    @property
    def requires(self) -> frozenset[str]:
        return frozenset()

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(AbstractCorrection):
            yield Refusal("demonstrations were not sampled, so no ratio to a sampler means anything: correction=None")
        if whole.run.learns.stability is not None:
            yield Refusal(
                "the closed loop needs the distance of the policy from its sampler, and these rows were not sampled: stability=None"
            )

    def accepts(self, task: Task) -> None:
        chosen(task, "completion", 0)

    def copies(self, task: Task) -> Sequence[Any]:
        value = task.columns.get("completion", ())
        return value if isinstance(value, list | tuple) else (value,)

    def __call__(self, attempt: Attempt) -> Steps:
        text = chosen(attempt.task, "completion", attempt.sample)
        if not isinstance(text, str) and not is_chat([text]):
            raise ValueError(
                f"task {attempt.task.id}: the completion is {text!r:.60}; expected text, one assistant message, or a list of either, "
                "one for each sample"
            )
        row = yield Write(text=text, end=self.end)
        return Episode.of(row)
