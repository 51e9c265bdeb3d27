"""The policy writes a skill for a frozen solver, and revises it by what came of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gimbal.advantages.estimators.revision_normalized import BEFORE, OUTCOME, REVISION, RevisionNormalized
from gimbal.composition import REVISES, Advice, Composition, Verdict
from gimbal.engines.native import Native
from gimbal.policies.token import CausalLM
from gimbal.records import Drop, Episode, Group, Rollout, Task
from gimbal.rewards.asking import asked_by, fill
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.exact import ExactAnswer
from gimbal.workflows.base import AbstractWorkflow, Ask, Attempt, Draw, Role, Steps
from gimbal.workflows.over_rows import scores_itself

SOLVER = "solver"


@dataclass(frozen=True, kw_only=True)
class SkillEvolution(AbstractWorkflow):
    """Writes a skill for the task at hand, has a frozen solver try it, and revises it by the outcome (Skill-R1, arXiv:2605.09359).

    k_g ~ pi(. | x, h_g);  y_(g,i) ~ mu(. | x, k_g) for i < ``tries``;  r_g = mean_i R(y_(g,i));  h_(g+1) = h_g + (k_g, y_g, r_g)

    for g < ``generations``. pi is trained and the ``solver`` mu never is. The prompt of k_g is ``write`` with {prompt}, {history} and
    the task's columns filled in; {history} is ``past`` for each earlier skill, oldest first, with its {skill}, the solver's {answers}
    (one a line) and their mean {score}. The solver is asked ``solve``, with the {skill}, and ``reward`` scores what it says; nothing
    that it says trains. Each skill is a row of its own with its r_g as outcome, which
    ``advantage=RevisionNormalized()`` compares within and across generations. An episode's score is that of its last skill.

    - one generation: single turns, each scored by what the solver makes of it.
    - a solver that does not read the skill: outcomes tell skills apart by chance alone.

    A try without a score (the reward does not apply, or gave no number) drops the attempt: ``unscored``.

    Confidence: partial; the loop of skill, outcomes and revision is published; ours: the prompts. The solver is asked once a try: no
    tools.
    """

    solver: Role = Role(policy=CausalLM(), engine=Native())
    generations: int = 3
    tries: int = 2
    reward: AbstractReward = ExactAnswer()
    write: str = "{prompt}\n\n{history}Write how to solve this."
    past: str = "What was written before: {skill}\nWhat came of it: {answers}\nScore: {score}\n\n"
    solve: str = "{skill}\n\n{prompt}"

    def __post_init__(self) -> None:
        if self.generations < 1 or self.tries < 1:
            raise ValueError(
                f"SkillEvolution has generations={self.generations} and tries={self.tries}; both count from 1"
            )
        if "{skill}" not in self.solve:
            raise ValueError(
                f"SkillEvolution.solve is {self.solve!r}; it must have {{skill}}, or the solver never reads it"
            )
        if self.generations > 1 and "{history}" not in self.write:
            raise ValueError(
                f"SkillEvolution.write is {self.write!r}; with several generations it must have {{history}}, or nothing is revised"
            )

    @property
    def roles(self) -> Mapping[str, Role]:
        return {SOLVER: self.solver}

    def effects(self) -> frozenset[str]:
        return super().effects() | {REVISES}

    def accepts(self, task: Task) -> None:
        self.reward.accepts(task)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from scores_itself("SkillEvolution", whole)
        if self.generations > 1 and not whole.has(RevisionNormalized):
            yield Advice(
                "all skills of an attempt share the score of the last: advantage='RevisionNormalized()' gives each its own"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        rows: list[Rollout] = []
        history, outcome = "", 0.0
        for number in range(self.generations):
            asked = asked_by(self.write, attempt.task, {"history": history})
            row: Rollout = yield Draw(task=asked, sample=attempt.sample, sampling=attempt.sampling)
            skill = row.text.strip()
            told = asked_by(self.solve, attempt.task, {"skill": skill})
            tries = yield [Ask(role=SOLVER, task=told, sampling=attempt.sampling) for _ in range(self.tries)]
            before, outcome = outcome, self._outcome(attempt, tries)
            rows.append(replace(row, scores={OUTCOME: outcome, BEFORE: before, REVISION: float(number)}))
            if not math.isfinite(outcome):
                return Drop("unscored", drawn=sum(row.drawn for row in rows))
            answers = "\n".join(one.text.strip() for one in tries)
            history += fill(self.past, attempt.task, {"skill": skill, "answers": answers, "score": f"{outcome:.2g}"})
        return Episode(rows=tuple(replace(row, score=outcome) for row in rows))

    def _outcome(self, attempt: Attempt, tries: list[Rollout]) -> float:
        """The mean score of the tries; NaN where one has none."""
        scores = self.reward(Group.of(attempt.group, attempt.task, [replace(one, task=attempt.task) for one in tries]))
        return sum(math.nan if score is None else float(score) for score in scores) / len(scores)
