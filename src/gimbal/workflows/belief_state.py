"""Two roles: one keeps a belief of where things stand, and another acts on that belief and not on the history."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gimbal.engines.base import DRAW
from gimbal.environments.base import AbstractEnvironmentSpec
from gimbal.environments.games import of_one
from gimbal.environments.recall import Recall
from gimbal.records import Acted, Drop, Episode, Rollout
from gimbal.rewards.asking import asked_by
from gimbal.workflows.base import AbstractWorkflow, Act, Attempt, Draw, Steps

BELIEVER, ACTOR = "believer", "actor"
SURE = "confirmed, almost certain, probable, possible, unlikely, doubtful, ruled out or unknown"


@dataclass(frozen=True, kw_only=True)
class BeliefState(AbstractWorkflow):
    """Before each action the role "believer" rewrites a belief, and the role "actor" sees that and the newest observation alone
    (Agent-BRACE, arXiv:2605.11436).

    b_k ~ pi_believer(. | task, b_(k-1), o_k),  a_k ~ pi_actor(. | task, b_k, o_k);  b_0 is empty.

    ``believe`` and ``act`` are the prompts of the two, with {prompt}, {belief}, {seen} (the observation) and the task's columns filled
    in; the default asks for claims with a word for how sure each is. ``tool`` answers whole turns of the actor, at most ``answers``
    times and once more in judgement, within ``setup`` and ``deadline`` seconds, as in Dialogue. Each text is a row of its own, so that
    contexts stay as long as a belief is, and all rows of an episode share its return: a belief is worth what is done with it. Group
    statistics count the episode once.

    By default both roles share the policy; ``separate={"actor": SeparateWeights()}`` of the run trains two models.

    - a believer that writes nothing, or does not see {belief}: no memory beyond the newest observation.
    - a believer that copies what it saw behind its belief: an agent that sees the whole history.

    Published: the believer is also rewarded for how well it tracks what a judge finds in the observation. Confidence: verified (what
    each role sees, two models); left out: that reward, and the supervised start.
    """

    tool: AbstractEnvironmentSpec = Recall()
    believe: str = (
        "{prompt}\n\nWhat you believed:\n{belief}\n\nWhat you see now:\n{seen}\n\nWrite what you believe now, one claim a line, and "
        f"how sure you are of each: {SURE}."
    )
    act: str = "{prompt}\n\nWhat you believe:\n{belief}\n\nWhat you see now:\n{seen}\n\nAnswer with what you do next."
    answers: int = 32
    deadline: float = 60.0
    setup: float = 60.0
    overlap: int = 16

    def __post_init__(self) -> None:
        of_one(self.tool, "BeliefState")
        if self.tool.triggers:
            raise ValueError(
                f"BeliefState.tool is {type(self.tool).__name__}, which is called in the middle of a turn; it must answer whole turns, "
                "as TextWorld() does"
            )
        if "{seen}" not in self.believe or "{belief}" not in self.act:
            raise ValueError(
                "BeliefState.believe must have {seen} in it and BeliefState.act {belief}, or what is seen never reaches who acts"
            )
        if self.answers < 0 or self.overlap < 0 or min(self.deadline, self.setup) <= 0:
            raise ValueError(
                f"BeliefState has answers={self.answers}, overlap={self.overlap}, deadline={self.deadline} and setup={self.setup}: "
                "counts of 0 or above, and numbers of seconds above 0"
            )

    @property
    def players(self) -> frozenset[str]:
        return frozenset({BELIEVER, ACTOR})

    @property
    def requires(self) -> frozenset[str]:
        return frozenset({DRAW})

    def __call__(self, attempt: Attempt) -> Steps:
        moment = yield self._do(attempt, None)
        if moment.error:
            return Drop(moment.failed, said=moment.error)
        rows: list[Rollout] = []
        acts: list[Acted] = []
        belief = ""
        while True:
            told = {"belief": belief, "seen": str(moment.observation or "")}
            rows.append((yield self._says(attempt, self.believe, told, BELIEVER)))
            belief = rows[-1].text.strip()
            row = yield self._says(attempt, self.act, {**told, "belief": belief}, ACTOR)
            rows.append(row)
            if row.stop != "stop":
                return Episode(rows=tuple(rows), acts=tuple(acts))
            moment = yield self._do(attempt, row.text)
            if moment.error:
                rows[-1] = replace(row, stop="error")
                return Episode(rows=tuple(rows), error=moment.error, fault=moment.fault, late=moment.late)
            acts.append(Acted(len(acts), moment.calls, moment.errors, moment.seconds))
            reward_S = row.reward_S.clone()
            reward_S[-1] += moment.reward
            rows[-1] = replace(row, reward_S=reward_S)
            if moment.ended or len(acts) > self.answers:
                rows[-1] = replace(rows[-1], stop="terminated" if moment.terminated else "truncated")
                return Episode(rows=tuple(rows), acts=tuple(acts))

    def _do(self, attempt: Attempt, action: str | None) -> Act:
        return Act(
            environment=self.tool,
            action=action,
            seat=attempt.sample,
            deadline=self.deadline,
            setup=self.setup,
            overlap=self.overlap,
        )

    def _says(self, attempt: Attempt, template: str, told: dict[str, str], role: str) -> Draw:
        task = asked_by(template, attempt.task, told)
        return Draw(task=task, sample=attempt.sample, sampling=attempt.sampling, role=role)
