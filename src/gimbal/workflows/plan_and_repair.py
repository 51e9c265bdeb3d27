"""Two loops around a plan and its execution: one repairs the execution, the other plans anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gimbal.advantages.estimators.revision_normalized import BEFORE, OUTCOME, REVISION
from gimbal.composition import REVISES, Composition, Verdict
from gimbal.engines.base import DRAW
from gimbal.environments.base import AbstractEnvironmentSpec, Moment
from gimbal.environments.games import of_one
from gimbal.environments.one_program import OneProgram
from gimbal.records import Acted, Drop, Episode, Rollout, Task
from gimbal.rewards.asking import asked_by, fill
from gimbal.workflows.base import AbstractWorkflow, Act, Attempt, Steps
from gimbal.workflows.over_rows import scores_itself
from gimbal.workflows.plan_and_execute import EXECUTOR, PLANNER, PlanAndExecute

UNPLANNED = "no plan was found in it"
PLACES = {PLANNER: 0.0, EXECUTOR: 1.0}  # what rows are compared with: their own role's


@dataclass(frozen=True, kw_only=True)
class PlanAndRepair(AbstractWorkflow):
    """Plans, executes and checks until the goal is reached; how far a failure came decides whether the execution is repaired or the
    plan replaced (the two loops of CVE2PoC, "A Dual-Loop Agent Framework for Automated Vulnerability Reproduction", for any task).

    y_k ~ pi_executor(. | template(x, m)),  m ~ pi_planner(. | x);  p_k = checks(x, y_k), the share of its stages that y_k passed.

    At p_k = 1, or after ``attempts`` executions, it ends. Otherwise the next execution is of a new plan if p_k is at least ``replan``,
    or if this plan has been executed ``tries`` times; and below that of the same plan. So what ran and did not do what was asked
    blames the plan, and what did not run blames the execution. A planner that hands nothing over has used an attempt, at p = 0.

    ``inside`` says how it is planned and executed at first. A repair is asked ``repair``, with the {plan}, what was {tried} last and
    what the checks said of it ({seen}); a new plan ``again``, with {failures}: ``past`` for each plan before, with the same words.
    {prompt} and the task's columns are filled in. ``checks`` is an environment that is begun anew for each execution, and answers
    its text with the share as reward: OneProgram, SumStages, or your own.

    Its score is 1 if the goal was reached, else 0. Each row has an outcome of its own as well: an execution p_k, a plan the best p of
    its executions. So the three levels of reward of UnityMAS-O (arXiv:2605.26646) are three advantages. Of the episode: GroupNormalized
    or any other, all rows have the score. Of roles: RevisionNormalized(across=0), by outcomes within the group and role. Of turns:
    RevisionNormalized(within=0, across=1), by what a row adds to the p of the execution before it (p_(-1) = 0); over the executions
    that sums to the last p, and a plan with one execution adds what that does. A plan that hands nothing over counts as an execution
    with p = 0.

    - ``attempts`` = 1: PlanAndExecute, scored by ``checks``.
    - ``replan`` = 1, ``tries`` = ``attempts``: one plan, the repair loop alone (S_max = 1).
    - ``tries`` = 1, or ``replan`` = 0: each execution has a plan of its own (T_max = 1).

    Confidence: abstract-only (plan, execute, evaluate, and two loops); ours: routing by the stage, where a model does it in the paper,
    the prompts, and the outcomes. Left out: plans that are dropped for tries without progress.
    """

    inside: PlanAndExecute = PlanAndExecute(template="{prompt}\n\nPlan: {plan}\n\nCarry it out.")
    checks: AbstractEnvironmentSpec = OneProgram()
    repair: str = "{prompt}\n\nPlan: {plan}\n\nThis was tried:\n{tried}\n\nThis came of it:\n{seen}\n\nKeep to the plan; do it right."
    again: str = "{prompt}\n\nThese plans did not lead there:\n{failures}\n\nPlan otherwise."
    past: str = "Plan: {plan}\nIt ended with: {seen}\n"
    attempts: int = 6
    tries: int = 3
    replan: float = 0.5
    deadline: float = 60.0
    overlap: int = 4

    def __post_init__(self) -> None:
        of_one(self.checks, "PlanAndRepair")
        if self.checks.triggers:
            raise ValueError(
                f"PlanAndRepair.checks is {type(self.checks).__name__}, which is called in the middle of a turn; it must answer a "
                "whole text with the share of its stages that it passed, as OneProgram() does"
            )
        if self.attempts < 1 or self.tries < 1:
            raise ValueError(
                f"PlanAndRepair has attempts={self.attempts} and tries={self.tries}; both count executions, of an episode and "
                "of one plan, from 1"
            )
        if not 0 <= self.replan <= 1:
            raise ValueError(f"PlanAndRepair.replan is {self.replan}; it is a share of the stages, 0 to 1")
        if "{plan}" not in self.repair:
            raise ValueError(
                f"PlanAndRepair.repair is {self.repair!r}; it must have {{plan}}, or a repair does not know its plan"
            )
        if self.overlap < 0 or not self.deadline > 0:
            raise ValueError(
                f"PlanAndRepair has overlap={self.overlap} and deadline={self.deadline}: a count of 0 or above, and seconds above 0"
            )

    @property
    def players(self) -> frozenset[str]:
        return self.inside.players

    @property
    def requires(self) -> frozenset[str]:
        return frozenset({DRAW})

    def effects(self) -> frozenset[str]:
        return super().effects() | {REVISES}

    def accepts(self, task: Task) -> None:
        for template in (self.repair, self.past):
            fill(template, task, dict.fromkeys(("plan", "tried", "seen"), ""))
        fill(self.again, task, {"failures": ""})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from scores_itself("PlanAndRepair", whole, "what is to count as workflow.checks")

    def __call__(self, attempt: Attempt) -> Steps:
        rows, acts, failures, count, before = list[Rollout](), list[Acted](), "", 0, 0.0
        while True:
            planned, plan = yield from self.inside.planned(self._asked(attempt, failures, new=count > 0))
            place, best, reached = len(rows), 0.0, 0.0 if plan is None else before
            told = {"plan": plan or planned.text, "tried": "", "seen": "" if plan else UNPLANNED}
            rows.append(planned)
            for tried in range(self.tries if plan is not None else 0):
                template = self.repair if tried else self.inside.template
                row = yield self.inside.executed(attempt, template, told)
                moment = yield from self._checked(attempt, row)
                if moment.error:
                    drawn = sum(one.drawn for one in (*rows, row))
                    return Drop(moment.failed, drawn=drawn, said=moment.error)
                rows.append(_outcome(row, moment.reward, reached))
                acts.append(Acted(len(acts), moment.calls, moment.errors, moment.seconds))
                best, reached, count = max(best, moment.reward), moment.reward, count + 1
                told |= {"tried": row.text.strip(), "seen": str(moment.observation or "").strip()}
                if moment.reward >= self.replan or count == self.attempts:
                    break
            count += plan is None
            rows[place], before = _outcome(planned, best, before), reached
            if best >= 1 or count == self.attempts:
                return Episode(rows=tuple(replace(row, score=float(best >= 1)) for row in rows), acts=tuple(acts))
            failures += fill(self.past, attempt.task, told)

    def _asked(self, attempt: Attempt, failures: str, *, new: bool) -> Attempt:
        """The attempt as the planner sees it."""
        task = asked_by(self.again, attempt.task, {"failures": failures}) if new else attempt.task
        return replace(attempt, task=task, fork=None)

    def _checked(self, attempt: Attempt, row: Rollout) -> Steps:
        """What the checks say of an execution, from a new beginning."""
        moment = Moment()
        for action in (None, row.text):
            moment = yield Act(
                environment=self.checks,
                action=action,
                seat=attempt.sample,
                deadline=self.deadline,
                overlap=self.overlap,
            )
            if moment.error:
                break
            if not 0 <= moment.reward <= 1:
                raise ValueError(
                    f"PlanAndRepair.checks, {type(self.checks).__name__}, answered with a reward of {moment.reward:g}; it is the share "
                    "of the stages that were passed, from 0 to 1"
                )
        return moment


def _outcome(row: Rollout, reached: float, before: float) -> Rollout:
    return replace(row, scores={OUTCOME: reached, BEFORE: before, REVISION: PLACES[row.role]})
