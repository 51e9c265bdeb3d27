"""A judge in two stages: criteria from the question alone, then judgements by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.chats import spoken
from gimbal.composition import Composition, Refusal, Verdict
from gimbal.records import Drop, Episode, Task
from gimbal.rewards.asking import fill
from gimbal.rewards.recorded import chosen
from gimbal.workflows.base import AbstractWorkflow, Attempt, Draw, Steps


@dataclass(frozen=True, kw_only=True)
class CriteriaFirst(AbstractWorkflow):
    """The first ``criteria`` samples of a task answer its prompt; each further one judges a response by one of them (CE-RM,
    arXiv:2601.20327).

    A judgement's prompt is ``template`` with {prompt}, {criteria} and {response} filled in; the response is an entry of the task's
    column ``column``: the better one first, then the worse. Sample criteria + j uses criteria number j modulo ``criteria`` and
    alternates the sides, so criteria (1 + 2 E) samples give E judgements of each side by each. Both stages are recorded and trained; a
    judgement's own ``task`` has the columns ``criterion`` and ``side``.

    - at most ``criteria`` samples, or tasks without the column: tasks unchanged.
    - ``criteria`` = 1: a judge with one list of criteria for all.
    """

    criteria: int = 4
    template: str = "{prompt}{criteria}\n{response}\n"
    column: str = "completion"

    def __post_init__(self) -> None:
        if self.criteria < 1:
            raise ValueError(f"CriteriaFirst.criteria is {self.criteria}; at least one list of criteria is needed")

    @property
    def whole(self) -> bool:
        return True

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(GroupNormalized):
            yield Refusal(
                "GroupNormalized would compare criteria with judgements, which CriteriaFirst puts into one group: use Stratified"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        first, judgements = [], []
        for sample in attempt.samples:
            judges = sample >= self.criteria and self.column in attempt.task.columns
            (judgements if judges else first).append(sample)
        # A judgement cannot proceed if its criteria were lost with the process that sampled them.
        outcomes: dict[int, Episode | Drop] = dict.fromkeys(judgements, Drop("no_criteria"))
        yield [self._by(attempt, sample, judgements, outcomes) for sample in first]
        return [outcomes[sample] for sample in attempt.samples]

    def _by(self, attempt: Attempt, number: int, judgements: list[int], outcomes: dict[int, Episode | Drop]) -> Steps:
        """One list of criteria, and then all judgements by it."""
        row = yield attempt.of(number).begin()
        outcomes[number] = Episode.of(row)
        mine = [sample for sample in judgements if (sample - self.criteria) % self.criteria == number]
        rows = yield [Draw(sample=sample, task=self._task(attempt.task, sample, number, row.text)) for sample in mine]
        outcomes |= {sample: Episode.of(judged) for sample, judged in zip(mine, rows, strict=True)}

    def _task(self, task: Task, sample: int, number: int, criteria: str) -> Task:
        side = (sample - self.criteria) // self.criteria % 2
        said = chosen(task, self.column, side)
        response = spoken(said) if isinstance(said, Mapping) else str(said)
        prompt = fill(self.template, task, {"criteria": criteria, "response": response})
        columns = {name: value for name, value in task.columns.items() if name != "messages"}
        columns |= {"criterion": number, "side": ("better", "worse")[side]}
        return replace(task, prompt=prompt, columns=columns)
