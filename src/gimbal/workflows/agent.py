"""Rollouts driven by your own program, which only needs a URL."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from gimbal.composition import OBSERVES, Advice, Composition, Refusal, Verdict
from gimbal.config.own import LARGEST, learnable
from gimbal.config.parts import label, resolve
from gimbal.engines.base import CONTINUE, DRAW, Witness
from gimbal.environments.program import HEARD, Program, Reply, Said, begins, is_reference, message, replied
from gimbal.ops.deadline import MOST_AT_ONCE
from gimbal.policies.token import Tokens, of_tokens
from gimbal.records import Drop, Episode, Rollout, Task
from gimbal.workflows.base import AbstractWorkflow, Act, Attempt, Decode, Draw, Encode, Steps
from gimbal.workflows.dialogue import labelled

CUT = "context_length_exceeded"  # OpenAI's word for it
NAME = "agent"  # of the score that it gives itself
Asked = Mapping[str, Any]  # as Program tells it
MARGIN = 30.0  # seconds by which the program's own deadlines come first


@dataclass(kw_only=True)
class Talk:
    """A row, and what a request that continues it begins with: messages, a text, or tokens. ``row`` is None while it is being drawn."""

    row: Rollout | None
    said: tuple[Any, ...]  # ("messages", [...], tools), ("text", str) or ("ids", [...])


@dataclass(frozen=True, kw_only=True)
class Agent(AbstractWorkflow):
    """A black-box agent: a program that sends requests to its own URL, in its own loop, and ends with a score (docs/agent.md).

    ``program`` is a Python function, agent.py:solve, called as solve(base_url, task) in its own process for each episode, or a command
    line, which reads the URL from OPENAI_BASE_URL and the task as JSON from standard input. It runs with the run's permissions, on the
    machine that samples, without a sandbox.

    A session is an episode. A request that continues a conversation reuses exactly the sampled tokens and encodes only what is new; if
    the program rewrote the history, a new row of the same episode begins. The score is what the function returns or the program posts
    to base_url/reward; with ``reward=`` the run's rewards score the last row instead.

    - An exception, an exit code other than 0 or a missed deadline is a failure of the agent: its episode leaves the group, counted
      as ``agent_error`` or ``agent_timeout``. So does one without a request (``no_answers``) or, where no reward of the run
      scores it, without a score (``no_score``).
    - ``setup``, ``acting`` and ``finishing`` are seconds: to its first request, from an answer to its next one or to its end, and from
      a posted reward to its end.
    - After ``answers`` answers, or if a row has no room left (sampling.max_length also counts observations), requests are refused with
      status 400; the agent may still end with a score.
    - ``at_once`` programs run at a time in each process that samples.
    - ``overlap`` None takes requests when they arrive. A number of engine steps makes runs with max_staleness above 0 repeatable too,
      at the cost of waiting (Act).
    """

    program: str | Callable[..., Any]
    at_once: int = 64
    answers: int = 64
    setup: float = 60.0
    acting: float = 120.0
    finishing: float = 30.0
    overlap: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.program, str):
            object.__setattr__(self, "program", label(self.program))
        if not 1 <= self.at_once <= MOST_AT_ONCE or self.answers < 1:
            raise ValueError(
                f"Agent has at_once={self.at_once} and answers={self.answers}; at_once is from 1 to {MOST_AT_ONCE}, answers 1 or above"
            )
        for name in ("setup", "acting", "finishing"):
            if not 0 < vars(self)[name] < math.inf:
                raise ValueError(f"Agent.{name} is {vars(self)[name]}; it must be a number of seconds above 0")
        if is_reference(str(self.program)):
            _callable(str(self.program))

    @property
    def requires(self) -> frozenset[str]:
        return frozenset({DRAW, CONTINUE})

    def effects(self) -> frozenset[str]:
        return super().effects() | {OBSERVES}

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        if find_spec("uvicorn") is None or find_spec("starlette") is None:
            yield Refusal("an agent uses HTTP, which needs the extra serve: pip install -e '.[serve]'")
        if not whole.run.policy.family.judged:
            yield Refusal("an agent talks to a language model: policy=CausalLM(model=...)")
        if whole.run.max_staleness > 0 and self.overlap is None:
            yield Advice(
                "agents take their own time, so with max_staleness above 0 the version that draws an answer goes by the clock: for a "
                "run that repeats to the bit max_staleness=0, or workflow.overlap=N"
            )

    def witnessed(self, word: Witness, canary: Sequence[Rollout]) -> Witness:
        """Checks at the address used by agents that this engine answers there, with these weights."""
        return resolve(HEARD)(word, canary)

    def __call__(self, attempt: Attempt) -> Steps:
        program = Program(
            program=str(self.program),
            sample=attempt.sample,
            setup=self.setup,
            acting=self.acting,
            finishing=self.finishing,
        )
        deadline = max(self.setup, self.acting, self.finishing) + MARGIN
        talks, told, count, refusals = list[Talk](), tuple[Reply, ...](), 0, list[Reply]()
        while True:
            moment = yield Act(
                environment=program, action=told, seat=attempt.sample, deadline=deadline, overlap=self.overlap
            )
            if moment.ended:
                break
            asked = moment.observation["requests"]
            told = tuple((yield [self._reply(attempt, talks, one, count + at) for at, one in enumerate(asked)]))
            count += len(asked)
            refusals += [reply for reply in told if "refused" in reply]
        rows = [labelled(talk.row) for talk in talks if talk.row is not None]
        drawn = sum(row.drawn for row in rows)
        if moment.error:
            return Drop(moment.failed, drawn=drawn, said=moment.error)
        if not rows:
            return Drop("no_answers", said=f"the agent {self.program} ended without an answer of the policy's")
        cut = any(CUT in reply.get("refused", "") for reply in refusals)
        rows[-1] = replace(rows[-1], stop="length" if cut else "terminated")
        end = moment.observation
        if end["score"] is None and attempt.judged:
            return Episode(rows=tuple(rows))
        return self._scored(rows, end["score"], end.get("returned", "no score"), drawn)

    def _scored(self, rows: list[Rollout], score: float | None, returned: str, drawn: int) -> Episode | Drop:
        if score is None or learnable(score) is None:
            got = returned if score is None or math.isnan(score) else f"the score {score:g}"
            said = (
                f"the agent {self.program} ended with {got}; return a finite number of size {LARGEST:g} at most, or post it to "
                "base_url/reward (0.0 for a failure), or give reward=FILE.py:FUNCTION, which scores its last row"
            )
            return Drop("no_score", drawn=drawn, said=said)
        return Episode(rows=tuple(rows)).scored(float(score), {NAME: float(score)})

    def _reply(self, attempt: Attempt, talks: list[Talk], asked: Asked, number: int) -> Steps:
        """The answers to one request, sampled concurrently."""
        if number >= self.answers:
            return {"refused": f"{CUT}: this episode has had its {self.answers} answers; end it"}
        prompts = [("messages", asked["messages"], asked["tools"])] if asked["messages"] is not None else []
        prompts += [("text", item) if isinstance(item, str) else ("ids", item) for item in asked["prompts"]]
        found = yield [self._answer(attempt, talks, asked, prompt) for prompt in prompts for _ in range(asked["n"])]
        refused = [each for each in found if isinstance(each, str)]
        return {"refused": refused[0]} if refused else replied(found)

    def _answer(self, attempt: Attempt, talks: list[Talk], asked: Asked, prompt: tuple[Any, ...]) -> Steps:
        """One answer, or a message if the request is refused."""
        talk, rest = _continued(talks, prompt)
        row = None if talk is None else talk.row
        task = _task(attempt.task, prompt) if row is None else row.task
        if talk is not None:
            talk.row = None  # nobody else continues it
        encoded = yield Encode(task=task) if row is None else Encode(row=row, told=rest)
        if encoded.refused:
            _back(talk, row)
            return encoded.refused
        ids = list(encoded.ids)
        begun = 0 if row is None else row.length + len(ids)
        most = min(encoded.room, attempt.sampling.max_length - begun, asked["most"] or attempt.sampling.max_length)
        if most < 1:
            _back(talk, row)
            return f"{CUT}: no room is left for an answer; shorten the conversation, or raise sampling.max_length"
        own = of_tokens(attempt.sampling)
        sampling = replace(own, max_length=begun + most, stop=tuple(asked["stop"]) or own.stop)
        mine = Talk(row=None, said=()) if talk is None else talk
        # What was asked last is the last row, which rewards read.
        talks[:] = [*(one for one in talks if one is not mine), mine]
        drawn = yield (
            Draw(task=task, sample=attempt.sample, sampling=sampling)
            if row is None
            else Draw(row=row, told=ids, sampling=sampling)
        )
        said = yield from _said(drawn, begun)
        mine.row, mine.said = drawn, _after(prompt, said)
        return said


def _callable(reference: str) -> None:
    function = resolve(reference)
    if not callable(function):
        raise ValueError(f"{reference} is {type(function).__name__}; an agent is a function: solve(base_url, task)")
    try:
        inspect.signature(function).bind("base_url", {})
    except TypeError as error:
        raise ValueError(f"{reference} cannot be called as solve(base_url, task): {error}") from error


def _task(task: Task, prompt: tuple[Any, ...]) -> Task:
    """The task with the request's prompt: the dataset's columns stay, for rewards."""
    kept = {key: value for key, value in task.columns.items() if key not in ("messages", "tools", "prompt_ids")}
    if prompt[0] == "messages":
        offered = {"tools": prompt[2]} if prompt[2] else {}
        return replace(task, prompt="", columns={**kept, "messages": prompt[1], **offered})
    if prompt[0] == "ids":
        return replace(task, prompt="", columns={**kept, "prompt_ids": prompt[1]})
    return replace(task, prompt=prompt[1], columns=kept)


def _continued(talks: Sequence[Talk], prompt: tuple[Any, ...]) -> tuple[Talk | None, Any]:
    """The longest row that a request continues, and what the request adds."""
    best, rest = None, None
    for talk in talks:
        if talk.row is None or talk.said[0] != prompt[0] or talk.said[2:] != prompt[2:]:
            continue
        known, given = talk.said[1], prompt[1]
        onward = len(known) < len(given) and (
            begins(given, known) if prompt[0] == "messages" else given[: len(known)] == known
        )
        if onward and (best is None or len(known) > len(best.said[1])):
            best, rest = talk, given[len(known) :]
    return best, rest


def _said(row: Rollout, begun: int) -> Steps:
    """What was sampled after the first ``begun`` decisions, in the client's format."""
    tokens, sampling = row.decisions, of_tokens(row.sampling)
    assert isinstance(tokens, Tokens), type(tokens)
    whole, first = tokens.ids_NL[0, : int(tokens.length_N[0])].tolist(), int(tokens.prompt_N[0]) + begun
    text = yield Decode(ids=tuple(whole[first:]))
    places = [text.find(stop) for stop in sampling.stop if stop in text]
    return Said(
        text=text[: min(places)] if places and row.stop == "stop" else text,
        ids=tuple(whole[first:]),
        prompt_ids=tuple(whole[:first]),
        logprobs=tuple(row.behavior_S[begun:].tolist()),
        versions=tuple(row.version_S[begun:].tolist()),
        stop=row.stop,
        pieces=tuple(f"token_id:{token}" for token in whole[first:]),
    )


def _after(prompt: tuple[Any, ...], said: Said) -> tuple[Any, ...]:
    """The beginning of a request that continues from this answer."""
    if prompt[0] == "messages":
        return (prompt[0], [*prompt[1], message(said.text, prompt[2], said)], prompt[2])
    if prompt[0] == "ids":
        return (prompt[0], [*said.prompt_ids, *said.ids])
    return (prompt[0], prompt[1] + said.text)


def _back(talk: Talk | None, row: Rollout | None) -> None:
    if talk is not None:
        talk.row = row


def short(value: Any) -> Any:
    """A function, or the reference to one, as an agent; anything else as it is."""
    if inspect.isfunction(value) or (
        isinstance(value, str) and is_reference(value) and inspect.isfunction(resolve(value))
    ):
        return Agent(program=value)
    return value
