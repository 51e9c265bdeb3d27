"""The user tasks of AgentDojo (arXiv:2406.13352): mailboxes, calendars, bank accounts and channels behind tools, judged by what they
hold in the end."""

from __future__ import annotations

import copy
import datetime
from ast import literal_eval
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import SimpleNamespace
from typing import Any, ClassVar

from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, AbstractTasks, Moment
from gimbal.environments.calls import ToolCall, answer, calls, written
from gimbal.records import Task

SUITES = ("workspace", "travel", "banking", "slack")
SYSTEM = "default"  # of the package's own system messages
# Of v1.2.2, what its own check gives to whoever does nothing, and why. The other 92 give nothing for that.
UNEARNED = {
    "banking/user_task_5": "it looks for a payment of 50 to Spotify, which the account has from the beginning; 5 was asked for",
    "banking/user_task_6": "it takes any recurring order of 50 whose subject has subscription in it, and Spotify's is one",
    "banking/user_task_8": "it has no check: it is always worth 1",
    "banking/user_task_9": "it wants a rent of 1100 and nothing changed, which is how the account begins",
    "banking/user_task_10": "it wants nothing changed",
}
NOON = datetime.datetime(2024, 5, 15, 12)  # the day that its calendar calls today


@dataclass(frozen=True, kw_only=True)
class AgentDojoTasks(AbstractTasks):
    """The user tasks of AgentDojo, suite after suite: a chat with the package's system message, and the suite's tools.

    97 in all: workspace 40, travel 20, banking 16, slack 21. Five of them (``UNEARNED``) are given to whoever does nothing, so they say
    nothing of a policy and are here only where ``every`` is asked for. ``injections`` of the benchmark (attacks in what tools answer)
    stand at their harmless defaults. The tasks are solved in ``AgentDojo``.
    """

    suites: tuple[str, ...] = SUITES
    every: bool = False
    version: str = "v1.2.2"

    def __post_init__(self) -> None:
        unknown = [suite for suite in self.suites if suite not in SUITES]
        if unknown or not self.suites:
            raise ValueError(f"AgentDojoTasks has the suites {unknown or 'none'}; choose of {', '.join(SUITES)}")

    @cached_property
    def _names(self) -> tuple[tuple[str, str], ...]:
        names = ((suite, name) for suite in self.suites for name in _suite(self.version, suite).user_tasks)
        return tuple((suite, name) for suite, name in names if self.every or f"{suite}/{name}" not in UNEARNED)

    @cached_property
    def _tools(self) -> Mapping[str, list[dict[str, Any]]]:
        return {suite: [_schema(tool) for tool in _suite(self.version, suite).tools] for suite in self.suites}

    @property
    def solved_in(self) -> AgentDojo:
        return AgentDojo()

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < len(self):
            raise IndexError(f"task {index} of {len(self)}")
        suite, name = self._names[index]
        asked = _suite(self.version, suite).user_tasks[name].PROMPT
        messages = [{"role": "system", "content": _system()}, {"role": "user", "content": asked}]
        names = {"suite": suite, "task": name, "version": self.version}
        columns = {"messages": messages, "tools": self._tools[suite], **names}
        return Task(id=f"agentdojo/{self.version}/{suite}/{name}", source=suite, columns=columns)

    def solution(self, task: Task) -> list[str]:
        """The turns of the package's own solution: its calls, one a turn, and what it says in the end."""
        suite, user = _of(task)
        steps = user.ground_truth(user.init_environment(suite.load_and_inject_default_environment({})))
        return [*(written(step.function, dict(step.args)) for step in steps), user.GROUND_TRUTH_OUTPUT]


@dataclass(frozen=True, kw_only=True)
class AgentDojo(AbstractEnvironmentSpec):
    """Where the tasks of ``AgentDojoTasks`` are solved: Dialogue(tool=AgentDojo(), answers=15).

    A turn with calls is answered with what its tools return; one without is the last, and worth 1 where the package's own check of the
    user's task says so, else 0. A call that cannot be, and a tool that raises, are answered with the package's error.

    The package writes the time on the wall into mails and files, and orders the participants of an event anew in each process. Here it
    is always noon of the day that its calendar calls today, and they stand as they were given: the same actions give the same bytes.
    """

    pays: ClassVar[bool] = True

    def open(self) -> AbstractEnvironment:
        return UserDesk()


class UserDesk(AbstractEnvironment):
    """One live user's world. All its state is ``world`` and the calls that were made in it."""

    def __init__(self) -> None:
        self._task = Task(id="")
        self._runtime: Any = None
        self._before: Any = None
        self._world: Any = None
        self._made: list[Any] = []

    def reset(self, task: Task, seed: int) -> None:
        suite, user = _of(task)
        from agentdojo.functions_runtime import FunctionsRuntime

        self._task, self._runtime, self._made = task, FunctionsRuntime(suite.tools), []
        self._world = user.init_environment(
            _world(task.columns["version"], task.columns["suite"]).model_copy(deep=True)
        )
        self._before = self._world.model_copy(deep=True)

    def step(self, action: str) -> Moment:
        asked = calls(action)
        if asked:
            return Moment(observation=[answer(call.name, self._done(call)) for call in asked])
        _, user = _of(self._task)
        solved = user.utility_from_traces(action, self._before, self._world, self._made)
        if solved is None:  # most tasks are judged by the world, not by the calls
            solved = user.utility(action, self._before, self._world)
        return Moment(reward=float(solved), terminated=True)

    def fork(self) -> UserDesk:
        other = UserDesk()
        other._task, other._runtime, other._before = self._task, self._runtime, self._before
        other._world, other._made = self._world.model_copy(deep=True), copy.deepcopy(self._made)
        return other

    def _done(self, call: ToolCall) -> str:
        """What the tool says; an error as the package tells it to a model."""
        from agentdojo.agent_pipeline.tool_execution import is_string_list, tool_result_to_str
        from agentdojo.functions_runtime import FunctionCall

        if call.wrong:
            return f"error: {call.wrong}"
        # A list that is written as a string is a list, as in the package's own loop.
        lists = {k: literal_eval(v) for k, v in call.arguments.items() if isinstance(v, str) and is_string_list(v)}
        made = FunctionCall(function=call.name, args={**call.arguments, **lists})
        self._made.append(made)
        said, error = self._runtime.run_function(self._world, made.function, made.args)
        return error or tool_result_to_str(said)


def _of(task: Task) -> tuple[Any, Any]:
    """(The suite, the user's task of it) of a task."""
    missing = [name for name in ("version", "suite", "task") if name not in task.columns]
    if missing:
        raise ValueError(
            f"task {task.id} has no column {missing[0]}; AgentDojo solves the tasks of tasks=AgentDojoTasks()"
        )
    suite = _suite(task.columns["version"], task.columns["suite"])
    return suite, suite.get_user_task_by_id(task.columns["task"])


@lru_cache
def _suite(version: str, name: str) -> Any:
    try:
        from agentdojo.task_suite import load_suites
    except ImportError as error:
        raise ValueError(
            f"AgentDojo's tasks come from its package, which is not installed whole ({error}): pip install -e "
            "'.[agentdojo]' in the clone"
        ) from error
    _settled()
    found = load_suites.get_suites(version)
    if name not in found:
        raise ValueError(f"AgentDojo has no version {version!r}; v1.2.2 is its newest, the other ones v1 to v1.2.1")
    return found[name]


def _settled() -> None:
    """What its tools would answer otherwise each time: they read the clock as their modules' ``datetime``, and make a list of a
    ``set``, whose order Python draws anew in each process. A name of a module comes before a built-in one."""
    from agentdojo.default_suites.v1.tools import calendar_client, cloud_drive_client, email_client

    clock: Any = SimpleNamespace(datetime=SimpleNamespace(now=lambda: NOON))
    email_client.datetime = cloud_drive_client.datetime = clock
    vars(calendar_client)["set"] = dict.fromkeys


@lru_cache
def _world(version: str, suite: str) -> Any:
    """As it is before anything is done, to be copied: to read it from its file takes a second."""
    return _suite(version, suite).load_and_inject_default_environment({})


@lru_cache
def _system() -> str:
    from agentdojo.agent_pipeline.agent_pipeline import load_system_message

    return load_system_message(SYSTEM)


def _schema(tool: Any) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters.model_json_schema()}
    return {"type": "function", "function": function}
