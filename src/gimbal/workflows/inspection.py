"""The policy inspects what a frozen solver answered, and decides whether it tries again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.engines.native import Native
from gimbal.policies.token import CausalLM
from gimbal.records import Drop, Episode, Group, Rollout, Task
from gimbal.rewards.asking import asked_by
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.exact import ExactAnswer
from gimbal.workflows.base import PAUSED, AbstractWorkflow, Ask, Attempt, Draw, Role, Steps
from gimbal.workflows.over_rows import scores_itself
from gimbal.workflows.skill_evolution import SOLVER

WITH, WITHOUT = "with", "without"


@dataclass(frozen=True, kw_only=True)
class Inspection(AbstractWorkflow):
    """A frozen solver answers, the policy inspects the answer, and the solver tries again if it says so; what that changed is the
    policy's reward (the second stage of PRISMA, arXiv:2601.05465, with its residual reward OARPO).

    y ~ mu(. | x);  u ~ pi(. | inspect(x, y));  y' = y, or if u matches ``redo`` y' ~ mu(. | again(x, y, u));
    r = R(y') - R(y)

    pi, the inspector, is trained; the ``solver`` mu never is, and nothing that it says trains. ``inspect`` is the prompt of u, with
    {prompt}, {answer} and the task's columns filled in; ``again`` that of the second try, with {said} too. R is ``reward``. To
    accept is worth 0, to have a wrong answer mended 1, to have a right one spoilt -1. Without ``residual`` r = R(y').

    Each sample of a group has an answer of its own to inspect. So group baselines compare inspectors of right answers with inspectors
    of wrong ones: by R(y') whoever got a right answer looks good, which the residual takes out.

    - all samples of a group inspect answers of one score: with a baseline from the group both rewards have one advantage.
    - an inspector that always accepts: r is 0 everywhere, and by R(y') it is the solver alone.

    ``score/with`` and ``score/without`` are R(y') and R(y). An evaluation is to count R(y'): ``held_out.workflow.residual=false``.

    Confidence: abstract-only (an inspector after frozen planner and solver, and a residual); ours: every formula. Left out: planner,
    retriever and memory, its two kinds of new tries, and the reward for a verdict that agrees with the evidence.
    """

    solver: Role = Role(policy=CausalLM(), engine=Native())
    reward: AbstractReward = ExactAnswer()
    inspect: str = "{prompt}\n\nAn answer was:\n{answer}\n\nIs it right? Say ACCEPT or AGAIN."
    redo: str = "AGAIN"
    again: str = "{prompt}"
    most: int | None = None  # tokens that the inspector may say; None: as long as an answer
    residual: bool = True

    def __post_init__(self) -> None:
        try:
            re.compile(self.redo)
        except re.error as error:
            raise ValueError(f"Inspection.redo is {self.redo!r}, which is no regular expression: {error}") from error
        if self.most is not None and self.most < 1:
            raise ValueError(f"Inspection.most is {self.most}; it counts tokens from 1, or is null")
        if "{answer}" not in self.inspect:
            raise ValueError(
                f"Inspection.inspect is {self.inspect!r}; it must have {{answer}}, or the inspector never reads it"
            )

    @property
    def roles(self) -> Mapping[str, Role]:
        return {SOLVER: self.solver}

    def accepts(self, task: Task) -> None:
        self.reward.accepts(task)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from scores_itself("Inspection", whole)
        held_out = whole.run.held_out
        if self.residual and held_out is not None and held_out.workflow is None:
            yield Refusal(
                "an evaluation with Inspection(residual=true) would show what the inspector changed and not how often the answer is "
                "right: held_out.workflow='Inspection(residual=false, ...)' with the same solver and prompts, or held_out=None"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        first = yield Ask(role=SOLVER, task=attempt.task, sampling=attempt.sampling)
        told = {"answer": first.text.strip()}
        asked = asked_by(self.inspect, attempt.task, told)
        row: Rollout = yield Draw(task=asked, sample=attempt.sample, sampling=attempt.sampling, most=self.most)
        row = replace(row, stop="stop") if row.stop == PAUSED else row
        last = first
        if re.search(self.redo, row.text):
            task = asked_by(self.again, attempt.task, {**told, "said": row.text.strip()})
            last = yield Ask(role=SOLVER, task=task, sampling=attempt.sampling)
        group = Group.of(attempt.group, attempt.task, [replace(one, task=attempt.task) for one in (first, last)])
        without, reached = self.reward(group)
        if without is None or reached is None:
            return Drop("unscored", drawn=row.drawn)
        score = reached - without if self.residual else reached
        return Episode.of(replace(row, score=float(score), scores={WITH: float(reached), WITHOUT: float(without)}))
