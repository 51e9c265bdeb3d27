"""Episodes in which the policy edits its own context: what it drops is gone, and what it writes in its place stays."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gimbal.composition import OBSERVES, Composition, Refusal, Verdict
from gimbal.engines.base import CONTINUE, DRAW, FORK
from gimbal.environments.base import AbstractEnvironmentSpec
from gimbal.environments.recall import Recall
from gimbal.policies.token import Tokens
from gimbal.records import Acted, Drop, Episode, Rollout, Task, is_chat
from gimbal.workflows.base import AbstractWorkflow, Act, Attempt, Decode, Draw, Encode, Steps
from gimbal.workflows.dialogue import labelled, offered, paid, said, shown

DROPPED = "(dropped)"  # what a chat shows in place of an observation; without a message its template has no place for the turn


@dataclass(frozen=True, kw_only=True)
class Context:
    """The tokens that the policy sees: the prompt, which stays, and the earlier turns, each an observation and the reply to it."""

    prompt: tuple[int, ...]
    turns: tuple[tuple[int, ...], ...] = ()

    @property
    def ids(self) -> tuple[int, ...]:
        return self.prompt + tuple(token for turn in self.turns for token in turn)

    def fitting(self, room: int) -> Context:
        """The context without its oldest turns, so that at most ``room`` tokens are left."""
        turns = self.turns
        while turns and len(replace(self, turns=turns).ids) > room:
            turns = turns[1:]
        return replace(self, turns=turns)


@dataclass(frozen=True, kw_only=True)
class EditedContext(AbstractWorkflow):
    """Lets the policy drop parts of its context and write what it wants to keep of them (Memory-as-Action, arXiv:2510.12635).

    Context of turn t: the prompt, the turns that are left, and the newest observation of ``tool``. A turn is an observation and what
    the policy said to it. What the policy says is an edit if ``edit`` is found in it; the group of the pattern says what to drop:
    nothing or "all" drops all earlier turns and the newest observation, numbers drop those earlier turns (1 is the oldest one that is
    left). The words of the edit stay in the context, so a summary is what the policy writes beside it.

    Rows: an edit ends a row. The next row begins with the edited context as its prompt, and only what is sampled from there on counts
    in it, so each decision trains once, behind the very tokens that it was sampled from. Tokens are kept and never encoded again. All
    rows share the return of the episode, group statistics count the episode once, and with SequenceMean so does the loss.

    The context never exceeds ``window`` tokens, of which ``turn`` are kept free for what the policy says. Where the next observation
    does not fit, the oldest turns are dropped first, which ends a row too. An episode ends if it does not fit even so, if the policy
    does not end its turn within ``turn`` tokens (both count as stopped by length), or after ``answers`` answers (truncated).
    ``deadline`` and ``setup`` are in seconds, as in Dialogue.

    The prompt is never dropped: what the task asks, and in a chat also what the environment first shows and the first turn, since the
    chat template joins them. In a chat "(dropped)" stands where the newest observation was.

    - a pattern that never matches: a sliding window.
    - besides, a window that holds the whole episode: Dialogue, in one row.

    Published: 8 attempts a task, 12 rows of them drawn for a step, a KL of 0.001. Confidence: verified (rows, statistics of
    episodes); ours: all rows train, the grammar, and a window that slides instead of a failure where the budget is exceeded.
    """

    tool: AbstractEnvironmentSpec = Recall()
    window: int = 1024
    turn: int = 128
    edit: str = r"<drop>(.*?)</drop>"
    answers: int = 32
    deadline: float = 60.0
    setup: float = 60.0
    overlap: int = 16

    def __post_init__(self) -> None:
        name = type(self.tool).__name__
        if self.tool.triggers:
            raise ValueError(
                f"EditedContext.tool is {name}, which is called in the middle of a turn; it must answer whole turns, as Terminal() does"
            )
        if self.answers < 1:
            raise ValueError(
                f"EditedContext.answers is {self.answers}, so an episode ends after its first turn, before an edit can act: set it to "
                "1 or more, or use workflow='SingleTurn()'"
            )
        if not 0 < self.turn < self.window or self.overlap < 0 or min(self.deadline, self.setup) <= 0:
            raise ValueError(
                f"EditedContext has window={self.window}, turn={self.turn}, overlap={self.overlap}, deadline={self.deadline} and "
                f"setup={self.setup}: a turn of 1 or more tokens and less than the window, an overlap of 0 or more, and numbers of "
                "seconds above 0"
            )
        try:
            groups = re.compile(self.edit).groups
        except re.error as error:
            raise ValueError(f"EditedContext.edit is {self.edit!r}, which is no regular expression: {error}") from error
        if groups != 1:
            raise ValueError(
                f"EditedContext.edit is {self.edit!r}; it must have one group, of what is dropped, such as <drop>(.*?)</drop>"
            )

    @property
    def requires(self) -> frozenset[str]:
        return frozenset({DRAW, CONTINUE})

    def effects(self) -> frozenset[str]:
        return super().effects() | {OBSERVES}

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        longest = whole.run.sampling.max_length
        if longest < self.window:
            yield Refusal(
                f"a row of EditedContext may have as many tokens as its window ({self.window}), and max_length is {longest}: "
                f"max_length={self.window}"
            )
        if outer := [part for part in whole.all(AbstractWorkflow) if part is not self and FORK in part.requires]:
            yield Refusal(
                f"{type(outer[0]).__name__} splits rows, and EditedContext does not know what the context of a split row was: use "
                "one of the two"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        seen = yield self._act(attempt, None)
        if seen.error:
            return Drop(seen.failed, said=seen.error)
        attempt = replace(attempt, task=offered(attempt.task, self.tool.schemas))
        context, told = yield from _begun(attempt.task, seen.observation)
        rows: list[Rollout] = []
        acts: list[Acted] = []
        fresh = True  # whether the next turn begins a row
        while True:
            fresh, context = (
                fresh or not self._fits(context, told),
                context.fitting(self.window - self.turn - len(told)),
            )
            if not self._fits(context, told):
                break
            begun = 0 if fresh else rows[-1].length + len(told)
            call = (yield from _first(attempt, (*context.ids, *told))) if fresh else Draw(row=rows.pop(), told=told)
            row = yield replace(call, most=self.turn)
            rows.append(row)
            if row.stop != "stop":
                break
            moment = yield self._act(attempt, row)
            if moment.error:
                rows[-1] = replace(row, stop="error")
                return Episode(
                    rows=tuple(map(labelled, rows)), error=moment.error, fault=moment.fault, late=moment.late
                )
            acts.append(Acted(len(acts), moment.calls, moment.errors, moment.seconds))
            rows[-1] = paid(row, [(row.length - 1, moment.reward)])
            if moment.ended or len(acts) > self.answers:
                rows[-1] = replace(rows[-1], stop="terminated" if moment.terminated else "truncated")
                return Episode(rows=tuple(map(labelled, rows)), acts=tuple(acts))
            fresh, context = yield from self._edited(context, told, row, begun)
            told = yield from _encoded(Encode(row=row, told=said(row.task, moment.observation) or ""))
        if not rows:
            return Drop(
                "no_room", said=f"the prompt of task {attempt.task.id} does not fit in a window of {self.window}"
            )
        rows[-1] = replace(rows[-1], stop="length")
        return Episode(rows=tuple(map(labelled, rows)), acts=tuple(acts))

    def _act(self, attempt: Attempt, row: Rollout | None) -> Act:
        return Act(
            environment=self.tool,
            action=row,
            seat=attempt.sample,
            deadline=self.deadline,
            setup=self.setup,
            overlap=self.overlap,
        )

    def _fits(self, context: Context, told: tuple[int, ...]) -> bool:
        return len(context.ids) + len(told) + self.turn <= self.window

    def _edited(self, context: Context, told: tuple[int, ...], row: Rollout, begun: int) -> Steps:
        """Whether the newest turn, the decisions of ``row`` from ``begun`` on, was an edit; and the context after it."""
        tokens = row.decisions
        assert isinstance(tokens, Tokens), type(tokens)
        words = tuple(tokens.ids_NL[0, int(tokens.prompt_N[0]) + begun : int(tokens.length_N[0])].tolist())
        chat = is_chat(row.task.columns.get("messages"))
        if chat and not told:  # the template joins the first turn to the prompt
            return False, replace(context, prompt=context.prompt + words)
        dropped = self.dropped((yield Decode(ids=words)), len(context.turns))
        if dropped is None:
            instead = (yield from _encoded(Encode(row=row, told=said(row.task, DROPPED)))) if chat else ()
            return True, replace(context, turns=(instead + words,))
        kept = tuple(turn for number, turn in enumerate(context.turns, start=1) if number not in dropped)
        return len(kept) < len(context.turns), replace(context, turns=(*kept, told + words))

    def dropped(self, text: str, turns: int) -> frozenset[int] | None:
        """The earlier turns (1 to ``turns``) that this text drops; None for all of them and the newest observation."""
        found = re.search(self.edit, text)
        if found is None:
            return frozenset()
        names = (found[1] or "").strip()
        if names in ("", "all"):
            return None
        return frozenset(map(int, re.findall(r"\d+", names))) & frozenset(range(1, turns + 1))


def _begun(task: Task, seen: Any) -> Steps:
    """The context and the observation of the first turn, which is a part of the prompt where the tokens of both are not those of the
    prompt and some more: in a chat, whose template closes the prompt."""
    prompt = yield from _encoded(Encode(task=task))
    whole = yield from _encoded(Encode(task=shown(task, seen)))
    if whole[: len(prompt)] != prompt:
        return Context(prompt=whole), ()
    return Context(prompt=prompt), whole[len(prompt) :]


def _encoded(call: Encode) -> Steps:
    found = yield call
    if found.refused:
        raise ValueError(found.refused)
    return found.ids


def _first(attempt: Attempt, ids: Sequence[int]) -> Steps:
    """The call that begins a row with these tokens as its prompt."""
    text = yield Decode(ids=tuple(ids))
    task = replace(attempt.task, prompt=text, columns={**attempt.task.columns, "prompt_ids": list(ids)})
    return Draw(task=task, sample=attempt.sample, sampling=attempt.sampling)
