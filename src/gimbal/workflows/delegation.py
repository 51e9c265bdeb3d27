"""Two roles: one delegates tasks, and another carries each out in a context that is thrown away."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gimbal.composition import OBSERVES, Composition, Refusal, Verdict
from gimbal.engines.base import CONTINUE, DRAW, FORK
from gimbal.records import Acted, Drop, Episode, Rollout, Task
from gimbal.rewards.asking import asked_by, fill
from gimbal.workflows.base import AbstractWorkflow, Attempt, Decode, Draw, Role, Steps
from gimbal.workflows.dialogue import labelled, said
from gimbal.workflows.plan_and_execute import EXECUTOR, PLANNER, check_plan, handed
from gimbal.workflows.rows import newest_turn
from gimbal.workflows.single import SingleTurn


@dataclass(frozen=True, kw_only=True)
class Delegation(AbstractWorkflow):
    """The role "planner" delegates tasks, one in a turn, and the role "executor" carries each out in a context of its own, of which
    only the result comes back (CoDA, arXiv:2512.12716).

    m_k ~ pi_planner(. | x, m_1, r_1, ..., r_(k-1)),  r_k ~ pi_executor(. | template(m_k)) by ``inside``.

    A turn of the planner delegates what the first group of ``delegate`` finds in it, at the last place; a turn without one is its
    answer, and the last row's text, which is scored. The executor is asked ``template``, with {task}, {prompt} and the columns of the
    task filled in, and ``inside`` drives it: Dialogue(tool=...) gives it tools, whose answers fill its context and not the planner's.
    An environment of ``inside`` is begun anew for each delegated task, with the columns of the episode's task. The planner is told
    ``told``, with what ``result`` finds in the executor's last turn as {result}, nothing where it finds none. After ``delegations``
    another one ends the episode, truncated.

    Rows: one of the planner, and those of each executor. All earn the episode's score, group statistics count the episode once, and
    all of its rows have the same advantage (PECO). With SequenceMean an episode counts once in the loss, however often it delegated:
    the published mean over rows counts it 1 + E_i times, for E_i delegations, and TokenMean by its tokens.

    By default both roles share the policy, as published; ``separate={"executor": SeparateWeights()}`` of the run trains two models,
    and with ``learning_rate=0`` only the planner.

    - a planner that never delegates, or ``delegations`` = 0: SingleTurn.
    - one delegation: the executor's row is that of PlanAndExecute with the same pattern and template.

    Confidence: verified (contexts, reward and statistics of episodes); left out: what the released reward pays besides the answer, for
    the format of either role and for documents that were summed up well, which rewards of your own can.
    """

    inside: AbstractWorkflow = SingleTurn()
    template: str = "{task}"
    delegate: str = r"(?s)<task>(.+?)</task>"
    result: str = r"(?s)(.+)"
    told: str = "{result}"
    delegations: int = 6

    def __post_init__(self) -> None:
        check_plan("Delegation", self.delegate, "<task>(.+?)</task>, of what is delegated", field="delegate")
        check_plan("Delegation", self.result, "<answer>(.+?)</answer>, of what comes back", field="result")
        if "{task}" not in self.template or "{result}" not in self.told:
            raise ValueError(
                f"Delegation has template={self.template!r} and told={self.told!r}; the first must have {{task}} in it and the second "
                "{result}, or nothing is handed over"
            )
        if self.delegations < 0:
            raise ValueError(f"Delegation.delegations is {self.delegations}; it counts those of an episode, 0 or above")
        if self.inside.whole:
            raise ValueError(
                f"{type(self.inside).__name__} drives whole groups, and Delegation has it drive single rows: inside=SingleTurn(), or "
                "Dialogue(tool=...)"
            )

    @property
    def players(self) -> frozenset[str]:
        return frozenset({PLANNER, EXECUTOR}) | self.inside.players

    @property
    def requires(self) -> frozenset[str]:
        return frozenset({DRAW, CONTINUE}) | self.inside.requires

    @property
    def roles(self) -> Mapping[str, Role]:
        return self.inside.roles

    def effects(self) -> frozenset[str]:
        return super().effects() | self.inside.effects() | {OBSERVES}

    def accepts(self, task: Task) -> None:
        fill(self.template, task, {"task": ""})
        fill(self.told, task, {"result": ""})
        self.inside.accepts(task)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if outer := [part for part in whole.all(AbstractWorkflow) if part is not self and FORK in part.requires]:
            yield Refusal(
                f"{type(outer[0]).__name__} splits rows, and Delegation does not know what had been delegated before a split: use one "
                "of the two"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        begin = attempt.begin()
        assert isinstance(begin, Draw), "nothing that splits rows drives it"
        row = yield replace(begin, role=PLANNER)
        rows, acts, spent, count = list[Rollout](), list[Acted](), 0, 0
        while row.stop == "stop" and self.delegations:
            task = handed(self.delegate, (yield Decode(ids=tuple(newest_turn(row)))))
            if task is None:
                break
            if count == self.delegations:
                row = replace(row, stop="truncated")
                break
            asked = replace(attempt, task=asked_by(self.template, attempt.task, {"task": task}))
            done = yield from acted_by(EXECUTOR, self.inside(asked))
            if isinstance(done, Drop):
                return replace(done, drawn=done.drawn + row.drawn + spent + sum(one.drawn for one in rows))
            rows, acts, spent = [*rows, *done.rows], [*acts, *following(acts, done.acts or ())], spent + done.spent
            if done.error:
                broken = (*rows, labelled(replace(row, stop="error")))
                return replace(done, rows=broken, spent=spent, acts=tuple(acts))
            found = handed(self.result, (yield Decode(ids=tuple(newest_turn(done.last)))))
            told, count = fill(self.told, attempt.task, {"result": found or ""}), count + 1
            row = yield Draw(row=row, told=said(attempt.task, told))
        return Episode(rows=(*rows, labelled(row)), spent=spent, acts=tuple(acts))


def following(acts: Sequence[Acted], later: Sequence[Acted]) -> Sequence[Acted]:
    """These acts with turns that go on from those of the executors before."""
    begun = acts[-1].turn + 1 if acts else 0
    return [act._replace(turn=begun + act.turn) for act in later]


def acted_by(role: str, steps: Steps) -> Steps:
    """The same calls, with this role in rows that are begun without one."""
    answer: Any = None
    while True:
        try:
            call = steps.send(answer)
        except StopIteration as ended:
            return ended.value
        answer = yield _named(role, call)


def _named(role: str, call: Any) -> Any:
    if isinstance(call, list | tuple):
        return [_named(role, one) for one in call]
    if isinstance(call, Generator):
        return acted_by(role, call)
    return replace(call, role=role) if isinstance(call, Draw) and call.row is None and not call.role else call
