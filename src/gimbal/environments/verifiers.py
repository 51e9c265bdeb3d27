"""Environments of verifiers as they are: their own loop runs, and where it asks its client for an answer, the policy answers."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import queue
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

from gimbal.config.parts import REFERENCE, label, resolve
from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, AbstractTasks, Failure, Moment
from gimbal.environments.calls import calls, without
from gimbal.records import Fault, Task

RAISED: contextvars.ContextVar[list[str]] = contextvars.ContextVar("raised")  # reward functions, in the rollout at hand
FAULTS: Mapping[str, Fault] = {
    "SandboxError": "sandbox",
    "ToolError": "tool",
    "ModelError": "provider",
    "InfraError": "provider",
}


@dataclass(frozen=True, kw_only=True)
class VerifiersTasks(AbstractTasks):
    """The rows of an environment of verifiers (its classic interface, verifiers < 0.4), with its system prompt and its tools.

    ``environment`` is a name that ``vf.load_environment`` finds, or a function or class that makes one: mine.py:load_environment. It is
    called with ``arguments``. The tasks are solved in ``Verifiers``.
    """

    environment: str | Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    split: Literal["train", "eval"] = "train"

    def __post_init__(self) -> None:
        if not isinstance(self.environment, str):
            object.__setattr__(self, "environment", label(self.environment))

    @property
    def solved_in(self) -> Verifiers:
        return Verifiers()

    @property
    def _key(self) -> tuple[str, str, str]:
        return str(self.environment), json.dumps(dict(self.arguments), sort_keys=True), self.split

    def __len__(self) -> int:
        return len(_rows(*self._key))

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < len(self):
            raise IndexError(f"task {index} of {len(self)}")
        environment, arguments, split = self._key
        row = _rows(*self._key)[index]
        columns = {
            "messages": [_plain(message) for message in row["prompt"]],
            "environment": environment,
            "arguments": arguments,
            "split": split,
            "row": index,
        }
        if tools := _schemas(_loaded(environment, arguments).tool_defs or ()):
            columns["tools"] = tools
        return Task(id=f"{environment}/{split}/{index}", source=environment, columns=columns)


@dataclass(frozen=True, kw_only=True)
class Verifiers(AbstractEnvironmentSpec):
    """Where the tasks of ``VerifiersTasks`` are solved: Dialogue(tool=Verifiers()).

    The environment's own ``rollout`` runs, on one thread for all of them as it is made for, and its rubric scores: parser, tools, turns
    and stop conditions are its own. What its rubric gives is the reward of the last turn. A stop at its ``max_turns`` (of several) is
    a truncation; what it notes as an error, and a timeout, are failures.

    A reward function that raises is worth 0 to verifiers. Here it is a failure, told by its name, for nobody scored that; with
    ``strict`` false it is worth 0. Refused by name: rewards of a whole group, and a loop that rewrites what was said.
    """

    pays: ClassVar[bool] = True
    strict: bool = True

    def open(self) -> AbstractEnvironment:
        return PackageLoop(self.strict)


class PackageLoop(AbstractEnvironment):
    """One live rollout. ``_known`` are the messages so far; ``_events`` what its loop asks for, or what came of it."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._known: list[dict[str, Any]] = []
        self._reply: asyncio.Future[Any] | None = None
        self._running: Any = None
        self._calls = self._turns = 0

    def reset(self, task: Task, seed: int) -> list[dict[str, Any]] | None:
        missing = [name for name in ("environment", "arguments", "split", "row") if name not in task.columns]
        if missing:
            raise ValueError(
                f"task {task.id} has no column {missing[0]}; Verifiers solves the tasks of tasks=VerifiersTasks(...)"
            )
        self.close()
        columns = task.columns
        made = _loaded(columns["environment"], columns["arguments"])
        row = _rows(columns["environment"], columns["arguments"], columns["split"])[columns["row"]]
        self._events, self._known, self._calls = queue.SimpleQueue(), list(columns["messages"]), 0
        self._turns = 0
        self._running = asyncio.run_coroutine_threadsafe(self._run(made, dict(row)), _thread())
        return self._next().observation

    def step(self, action: str) -> Moment:
        from verifiers.legacy.types import Response, ResponseMessage, ToolCall

        found = calls(action)
        if any(call.wrong for call in found):  # text, as from an endpoint that cannot read it
            found = []
        made = []
        for call in found:
            made.append(ToolCall(id=f"call_{self._calls}", name=call.name, arguments=json.dumps(dict(call.arguments))))
            self._calls += 1
        said = ResponseMessage(
            content=without(action) if found else action,
            tool_calls=made or None,
            finish_reason="tool_calls" if made else "stop",
            is_truncated=False,
        )
        self._turns += 1
        self._known.append(_plain(said))
        assert self._reply is not None, "reset comes before step"
        answer = Response(id="gimbal", created=0, model="gimbal", message=said)
        _thread().call_soon_threadsafe(self._reply.set_result, answer)
        return self._next()

    def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            self._running = None

    async def ask(self, prompt: Sequence[Any]) -> Any:
        """What the client of its loop is asked: on the loop's thread."""
        self._reply = asyncio.get_running_loop().create_future()
        self._events.put(("asked", [_plain(message) for message in prompt]))
        return await self._reply

    async def _run(self, made: Any, row: dict[str, Any]) -> None:
        raised: list[str] = []
        RAISED.set(raised)
        try:
            state = await made.rollout(row, _client(self.ask), "gimbal", {})
            if state["error"] is None and not state.get("timed_out"):
                await made.rubric.score_rollout(state)
            await made.rubric.cleanup(state)
        except BaseException as error:  # on a thread of its own nobody would hear of it; it is told where a step waits
            self._events.put(("broke", error))
            raise
        self._events.put(("ended", (state, raised)))

    def _next(self) -> Moment:
        what, came = self._events.get()
        if what == "broke":
            raise came
        if what == "asked":
            return Moment(observation=self._told(came))
        state, raised = came
        if error := state["error"]:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            fault = next((FAULTS[kind] for kind in kinds if kind in FAULTS), "environment")
            raise Failure(f"{type(error).__name__}: {error or error.__cause__}", fault)
        if state.get("timed_out"):
            raise Failure("its own timeout was reached")
        if raised and self.strict:
            raise Failure(f"a reward function raised, which scores nothing ({raised[0]}); strict=False takes it as 0")
        cut = bool(state["is_truncated"]) or (state["stop_condition"] == "max_turns_reached" and self._turns > 1)
        return Moment(reward=float(state["reward"]), terminated=not cut, truncated=cut)

    def _told(self, prompt: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
        """What is new in a prompt."""
        if prompt[: len(self._known)] != self._known:
            raise Failure(
                "its loop rewrites what was said, so its turns are no one row; such environments are not covered"
            )
        new = prompt[len(self._known) :]
        self._known = prompt
        return new or None


def _client(ask: Callable[[Any], Any]) -> Any:
    """A client of verifiers that answers with what the policy says."""
    from verifiers.legacy.clients import Client

    async def get_response(
        self: Any, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **rest: Any
    ) -> Any:
        return await ask(prompt)

    # Whatever else the interface demands is part of how a real client does this one thing.
    unused = dict.fromkeys(Client.__abstractmethods__, None)
    return type("Policy", (Client,), {**unused, "get_response": get_response})(None)


@lru_cache
def _thread() -> asyncio.AbstractEventLoop:
    """The loop on which all rollouts of this process run. Environments of verifiers share state among rollouts without locks, as one
    thread may."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="verifiers", daemon=True).start()
    return loop


@lru_cache
def _loaded(environment: str, arguments: str) -> Any:
    try:
        import verifiers.legacy as vf
        from verifiers.legacy.envs import environment as package
    except ImportError as error:
        raise ValueError(
            f"environments of verifiers need its classic interface, which is not installed whole ({error}): pip install -e "
            "'.[verifiers]' in the clone (0.3; in 0.4 an environment is a program that talks to an endpoint: gimbal serve)"
        ) from error
    # It takes Ctrl-C and SIGTERM over, from whoever ends a run at a checkpoint, and can be made on the main thread alone therefore.
    vars(package)["signal"] = SimpleNamespace(**vars(signal) | {"signal": lambda number, handler: None})
    given = json.loads(arguments)
    made = (
        resolve(environment)(**given) if REFERENCE.fullmatch(environment) else vf.load_environment(environment, **given)
    )
    if not isinstance(made, vf.MultiTurnEnv):
        raise ValueError(
            f"{environment} makes a {type(made).__name__}; an environment of verifiers < 0.4 is wanted (vf.ToolEnv, ...)"
        )
    if made.requires_group_rollouts:
        raise ValueError(
            f"{environment} scores whole groups of rollouts at once; gimbal asks for the score of one: take those functions out"
        )
    for rubric in _rubrics(made.rubric):
        rubric.funcs = [_noted(function) for function in rubric.funcs]
    return made


def _rubrics(rubric: Any) -> list[Any]:
    """A rubric, or those of a group of them."""
    return (
        [one for each in vars(rubric)["rubrics"] for one in _rubrics(each)] if "rubrics" in vars(rubric) else [rubric]
    )


def _noted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The reward function, which leaves word where it raises: its rubric makes 0 of that."""

    @functools.wraps(function)
    async def noted(*given: Any, **named: Any) -> Any:
        try:
            scored = function(*given, **named)
            return await scored if asyncio.iscoroutine(scored) else scored
        except Exception as error:
            RAISED.get().append(f"{function.__name__}: {type(error).__name__}: {error}")
            raise

    return noted


@lru_cache
def _rows(environment: str, arguments: str, split: str) -> Any:
    made = _loaded(environment, arguments)
    return made.get_dataset() if split == "train" else made.get_eval_dataset()


def _schemas(tools: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {"name": one.name, "description": one.description, "parameters": one.parameters},
        }
        for one in tools
    ]


def _plain(message: Any) -> dict[str, Any]:
    """A message of verifiers (or of its data set, which has a column for each key that any message has) as templates have it."""
    given = message if isinstance(message, Mapping) else message.model_dump()
    content = given.get("content")
    if isinstance(content, list):
        if any(part.get("type") != "text" for part in content):
            raise Failure("it says something that is no text; images and sounds of verifiers are not covered")
        content = "".join(part["text"] for part in content)
    plain = {"role": given["role"], "content": content or ""}
    made = [
        {"type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call in given.get("tool_calls") or ()
    ]
    return plain | ({"tool_calls": made} if made else {})
