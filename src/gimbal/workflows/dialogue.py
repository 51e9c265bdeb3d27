"""Episodes in which an environment answers: its answers join the row as observations, and the policy continues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from gimbal.composition import LIMITS_TURNS, OBSERVES
from gimbal.dataflow.curricula.horizon import COLUMN as TURNS
from gimbal.engines.base import CONTINUE, DRAW
from gimbal.environments.base import AbstractEnvironmentSpec
from gimbal.environments.games import of_one
from gimbal.environments.tools import Calculator
from gimbal.records import Acted, Drop, Episode, Part, Rollout, Task, is_chat
from gimbal.workflows.base import PAUSED, AbstractWorkflow, Act, Attempt, Draw, Steps


@dataclass(frozen=True, kw_only=True)
class Dialogue(AbstractWorkflow):
    """Lets ``tool`` (or another environment) answer at most ``answers`` times per episode; its tokens are Part.OBSERVATION.

    A tool is called when the policy writes one of its triggers, with all text so far. An environment without triggers shows its first
    observation after the prompt and is called at the end of each turn, with the text of that turn; after ``answers`` answers it judges
    one more turn, and an episode that has not ended then is truncated. In a chat, its text is a user message.

    Observations do not count as decisions, but count toward length, and belong to the turn that they answer; the next turn begins after
    them. A row with no room for an answer is cut there. A row's cache is rebuilt after each answer.

    A call that raises or takes longer than ``deadline`` seconds ends its episode with an error, which is reported, counted and excluded
    from the statistics; to be made and reset, an environment has ``setup`` seconds. An environment that judges an episode does so in
    its last step, within ``deadline`` too: which one that is it alone knows. Nothing waits for it to close.

    An answer joins ``overlap`` engine steps after its question (sooner only if nothing else can be generated): 0 waits for it at the
    next step. For a slow tool, set about as many steps as it takes; the other rows continue meanwhile.

    If the task has a column ``turns`` (curricula.Horizon), an episode still asking after that many turns is truncated: with a tool
    at its trigger; otherwise once the environment has judged the last of these turns, and the episode has not ended with it.

    - ``answers`` = 0, or a tool that never answers: SingleTurn.
    """

    tool: AbstractEnvironmentSpec = Calculator()
    answers: int = 8
    deadline: float = 60.0
    setup: float = 60.0
    overlap: int = 16

    def __post_init__(self) -> None:
        of_one(self.tool, "Dialogue")
        if self.answers < 0 or self.overlap < 0 or min(self.deadline, self.setup) <= 0:
            raise ValueError(
                f"Dialogue has answers={self.answers}, overlap={self.overlap}, deadline={self.deadline} and setup={self.setup}: counts "
                "of 0 or above, and numbers of seconds above 0"
            )

    @property
    def requires(self) -> frozenset[str]:
        return frozenset({DRAW, CONTINUE})

    def effects(self) -> frozenset[str]:
        return super().effects() | {OBSERVES, LIMITS_TURNS}

    def __call__(self, attempt: Attempt) -> Steps:
        given = answered(attempt.fork[0], attempt.fork[1]) if attempt.fork else 0
        # A branch continues in the environment's state at its split.
        after = (attempt.fork[0].sample, given) if attempt.fork else None
        if attempt.fork is None and not self.tool.triggers:
            # An environment that is not a tool is shown before the policy's first turn.
            seen = yield replace(self._act, seat=attempt.sample)
            if seen.error:
                return Drop(seen.failed, said=seen.error)
            attempt = replace(attempt, task=shown(attempt.task, seen.observation))
        turns = attempt.task.columns.get(TURNS)
        attempt = replace(attempt, task=offered(attempt.task, self.tool.schemas))
        row = yield attempt.begin(stop=self._stop(given))
        rewards: list[tuple[int, float]] = []
        acts: list[Acted] = []
        while self._asks(row):
            last = turns is not None and given + 1 >= int(turns)
            if last and self.tool.triggers:  # a tool is asked for the sake of another turn
                row = replace(row, stop="truncated")
                break
            action = row.text if self.tool.triggers else row
            moment = yield replace(self._act, action=action, seat=attempt.sample, after=after)
            if moment.error:
                return Episode(
                    rows=(replace(labelled(row), stop="error"),),
                    error=moment.error,
                    fault=moment.fault,
                    late=moment.late,
                )
            acts.append(Acted(given, moment.calls, moment.errors, moment.seconds))
            rewards += [(row.length - 1, moment.reward)] if moment.reward else []
            if moment.ended:
                row = replace(row, stop="terminated" if moment.terminated else "truncated")
                break
            if last or given >= self.answers:
                row = replace(row, stop="truncated")
                break
            given += moment.observation is not None or not self.tool.triggers
            told = moment.observation if self.tool.triggers else said(attempt.task, moment.observation)
            row = yield Draw(row=row, told=told, stop=self._stop(given))
        return Episode(rows=(labelled(paid(row, rewards)),), acts=tuple(acts))

    @property
    def _act(self) -> Act:
        return Act(environment=self.tool, deadline=self.deadline, setup=self.setup, overlap=self.overlap)

    def _stop(self, given: int) -> tuple[str, ...]:
        return self.tool.triggers if given < self.answers else ()

    def _asks(self, row: Rollout) -> bool:
        """Whether its turn is over and the row is not."""
        return row.stop == (PAUSED if self.tool.triggers else "stop")


def shown(task: Task, seen: str | Sequence[Mapping[str, Any]] | None) -> Task:
    """The task with the environment's first observation after its prompt or messages."""
    if not seen:
        return task
    if not is_chat(task.columns.get("messages")):
        return replace(task, prompt=task.prompt + str(seen))
    return replace(task, columns={**task.columns, "messages": [*task.columns["messages"], *(said(task, seen) or ())]})


def said(task: Task, told: Any) -> Any:
    """An environment's answer after a finished turn: in a chat, text is a user message."""
    chat = is_chat(task.columns.get("messages"))
    return [{"role": "user", "content": told}] if chat and isinstance(told, str) else told


def offered(task: Task, schemas: Sequence[Mapping[str, Any]]) -> Task:
    """The task with these functions added to those passed to the chat template; a text prompt cannot hold them."""
    if not schemas or not is_chat(task.columns.get("messages")):
        return task
    return replace(task, columns={**task.columns, "tools": [*(task.columns.get("tools") or ()), *schemas]})


def answered(row: Rollout, upto: int) -> int:
    """How often the first ``upto`` decisions of a row were answered."""
    return 0 if row.turn_S is None else int(row.turn_S[upto])


def labelled(row: Rollout) -> Rollout:
    """With its parts and turns, even without observations."""
    if row.part_S is not None:
        return row
    part_S = torch.full((row.length,), int(Part.RESPONSE))
    return replace(row, part_S=part_S, turn_S=torch.zeros(row.length, dtype=torch.long))


def paid(row: Rollout, rewards: list[tuple[int, float]]) -> Rollout:
    """With the rewards of its environment on the decisions that earned them."""
    if not rewards:
        return row
    reward_S = row.reward_S.clone()
    for at, reward in rewards:
        reward_S[at] += reward
    return replace(row, reward_S=reward_S)
