"""Two roles: one plans, and another executes the plan in a context of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gimbal.records import Episode
from gimbal.rewards.asking import asked_by
from gimbal.workflows.base import AbstractWorkflow, Attempt, Draw, Steps

PLANNER, EXECUTOR = "planner", "executor"


@dataclass(frozen=True, kw_only=True)
class PlanAndExecute(AbstractWorkflow):
    """The role "planner" answers the prompt, and the role "executor" goes on from its plan (ReMA, arXiv:2503.09501, in one turn each;
    the executor's context as in CoDA, arXiv:2512.12716).

    y ~ pi_executor(. | template(x, m)),  m ~ pi_planner(. | x);  both rows are one episode and earn its score.

    The planner ends at one of ``stop``, or as any row does. What the first group of the pattern ``plan`` finds in its text, at the
    last place, is handed over: the executor's prompt is ``template``, with {plan}, {prompt} and the task's columns filled in. Without
    a match nobody executes, and the planner's text is what is scored.

    By default both roles share the policy, and their prompts tell them apart; ``separate={"executor": SeparateWeights()}`` of the run
    trains two models.

    - a pattern that never matches: SingleTurn.

    Confidence: verified (two roles, one outcome); ours: the pattern.
    """

    template: str = "{prompt}{plan}\n"
    plan: str = r"(?s)(.+)"
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_plan("PlanAndExecute", self.plan, "(.+), of what is handed over")

    @property
    def players(self) -> frozenset[str]:
        return frozenset({PLANNER, EXECUTOR})

    def __call__(self, attempt: Attempt) -> Steps:
        if attempt.fork is not None and attempt.fork[0].role == EXECUTOR:  # its plan counts where it was drawn
            return Episode.of((yield attempt.begin()))
        planned, plan = yield from self.planned(attempt)
        if plan is None:
            return Episode.of(planned)
        return Episode(rows=(planned, (yield self.executed(attempt, self.template, {"plan": plan}))))

    def planned(self, attempt: Attempt) -> Steps:
        """The planner's row, and what is handed over, or None."""
        begin = attempt.begin(stop=self.stop)
        planned = yield replace(begin, role=PLANNER) if isinstance(begin, Draw) else begin
        planned = replace(planned, stop="stop") if planned.stop == "paused" else planned
        return planned, handed(self.plan, planned.text)

    def executed(self, attempt: Attempt, template: str, told: Mapping[str, str]) -> Draw:
        """The call of the executor, by a template."""
        task = asked_by(template, attempt.task, told)
        return Draw(task=task, sample=attempt.sample, sampling=attempt.sampling, role=EXECUTOR)


def check_plan(workflow: str, plan: str, wanted: str, field: str = "plan") -> None:
    """Refuses a pattern that is none, or has no group; ``wanted`` is an example of one, and of what."""
    try:
        groups = re.compile(plan).groups
    except re.error as error:
        raise ValueError(f"{workflow}.{field} is {plan!r}, which is no regular expression: {error}") from error
    if groups < 1:
        raise ValueError(f"{workflow}.{field} is {plan!r}; it must have a group, such as {wanted}")


def handed(plan: str, text: str) -> str | None:
    """What the first group of the pattern finds in the text, at the last place; None where it finds nothing."""
    found = re.findall(plan, text)
    if not found:
        return None
    return found[-1] if isinstance(found[-1], str) else found[-1][0]
