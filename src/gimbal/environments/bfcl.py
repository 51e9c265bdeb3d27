"""The multi-turn tasks of the Berkeley Function-Calling Leaderboard: file systems, brokers, cars and tickets behind functions, a user
who asks for one thing after another, and a check of the state after each."""

from __future__ import annotations

import ast
import copy
import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, AbstractTasks, Moment
from gimbal.environments.calls import ToolCall, answer, calls, written
from gimbal.records import Task

Category = Literal["base", "miss_func", "miss_param", "long_context"]
DONE = "Done."  # what the solution says at the end of a turn
MOST = 20  # steps of a turn, after which the package gives an entry up


@dataclass(frozen=True, kw_only=True)
class BfclTasks(AbstractTasks):
    """The 200 multi-turn entries of a ``category`` of BFCL v4: a chat that begins with the user's first request, and its functions.

    ``base``: all that is needed is said and there. ``miss_func``: a function is told of only later, by the user (as in the package's
    prompting mode; what a template was given cannot grow). ``miss_param``: a value is told only when it is asked
    for. ``long_context``: functions answer with much that is of no use. They are solved in ``Bfcl``.
    """

    category: Category = "base"

    @cached_property
    def _entries(self) -> Sequence[Mapping[str, Any]]:
        return _loaded(self.category)

    @property
    def solved_in(self) -> Bfcl:
        return Bfcl()

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < len(self):
            raise IndexError(f"task {index} of {len(self)}")
        entry = self._entries[index]
        columns = {
            "messages": [dict(message) for message in entry["question"][0]],
            "tools": [_schema(one) for one in entry["function"]],
            "category": self.category,
            "entry": index,
        }
        return Task(id=entry["id"], source=f"bfcl_{self.category}", columns=columns)

    def solution(self, task: Task) -> list[str]:
        """The turns of the package's own solution: all calls of a turn at once, and then its end."""
        entry = _entry(task)
        live, turns = _instances(entry), []
        for asked in entry["ground_truth"]:
            made = [written(name, arguments) for name, arguments in (_read(call, live) for call in asked)]
            turns += ["\n".join(made)] * bool(made) + [DONE]
        return turns


@dataclass(frozen=True, kw_only=True)
class Bfcl(AbstractEnvironmentSpec):
    """Where the tasks of ``BfclTasks`` are solved: Dialogue(tool=Bfcl(), answers=40).

    A turn with calls is answered with what its functions return; one without ends what the user asked for, and the user asks for the
    next thing. It is worth 1 where after each request the package's own check holds: the state of all APIs is that of its solution, and
    what its solution was answered has been answered. The first request that fails ends the episode, for nothing can make up for it;
    so does one that takes more than 20 steps, as in the package.

    Functions are called with what JSON says. The package evaluates a model's text as Python, which here would be its own process.
    """

    pays: ClassVar[bool] = True

    def open(self) -> AbstractEnvironment:
        return Apis()


class Apis(AbstractEnvironment):
    """One live user and the APIs. ``_mine`` are the policy's, ``_theirs`` those in which the package's solution is executed."""

    def __init__(self) -> None:
        self._entry: Mapping[str, Any] = {}
        self._mine: dict[str, Any] = {}
        self._theirs: dict[str, Any] = {}
        self._said: list[str] = []  # by functions, since the beginning
        self._turn = self._steps = self._made = 0

    def reset(self, task: Task, seed: int) -> None:
        self._entry = _entry(task)
        self._mine, self._theirs = _instances(self._entry), _instances(self._entry)
        self._said, self._turn, self._steps, self._made = [], 0, 0, 0

    def step(self, action: str) -> Moment:
        self._steps += 1
        if self._steps > MOST:
            return Moment(terminated=True)
        if not (asked := calls(action)):
            return self._next()
        return Moment(observation=[answer(call.name, self._done(call)) for call in asked])

    def fork(self) -> Apis:
        other = Apis()
        other._entry, other._said = self._entry, list(self._said)
        # At once: what two of them share, a copy of each would not.
        other._mine, other._theirs = copy.deepcopy((self._mine, self._theirs))
        other._turn, other._steps, other._made = self._turn, self._steps, self._made
        return other

    def _done(self, call: ToolCall) -> str:
        if call.wrong:
            return f"error: {call.wrong}"
        said = _executed(self._mine, call.name, call.arguments)
        self._made += 1
        self._said.append(said)
        return said

    def _next(self) -> Moment:
        """The end of a turn: its check, and what the user says then."""
        if not self._valid():
            return Moment(terminated=True)
        self._turn, self._steps, self._made = self._turn + 1, 0, 0
        if self._turn == len(self._entry["question"]):
            return Moment(reward=1.0, terminated=True)
        return Moment(observation=list(self._entry["question"][self._turn]))

    def _valid(self) -> bool:
        """As the package's multi_turn_checker has it, turn by turn."""
        from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker as package

        wanted = self._entry["ground_truth"][self._turn]
        right = [_executed(self._theirs, *_read(call, self._theirs)) for call in wanted]
        # What is asked for cannot be done yet, and whatever was done shows in the states of the next turn.
        if not wanted:
            return True
        if not self._made or not package.state_checker(self._mine, self._theirs)["valid"]:
            return False
        return package.response_checker(self._said, right, self._turn)["valid"]


def _entry(task: Task) -> Mapping[str, Any]:
    missing = [name for name in ("category", "entry") if name not in task.columns]
    if missing:
        raise ValueError(f"task {task.id} has no column {missing[0]}; Bfcl solves the tasks of tasks=BfclTasks()")
    return _loaded(task.columns["category"])[task.columns["entry"]]


@lru_cache
def _loaded(category: str) -> Sequence[Mapping[str, Any]]:
    """The entries of a category, each with its functions and solution."""
    try:
        from bfcl_eval import utils
        from bfcl_eval.constants.default_prompts import DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING as MORE
    except ImportError as error:
        raise ValueError(
            f"BFCL's tasks come from its package, which is not installed whole ({error}). It pins numpy to 1.26.4, so install it "
            "without what it does not need here: pip install --no-deps bfcl-eval==2026.3.23 mpmath filelock"
        ) from error
    entries = utils.load_dataset_entry(f"multi_turn_{category}", include_prereq=False)
    solved = {one["id"]: one["ground_truth"] for one in utils.load_ground_truth_entry(f"multi_turn_{category}")}
    for entry in entries:
        entry["ground_truth"] = solved[entry["id"]]
        entry["question"] = [[dict(message) for message in turn] for turn in entry["question"]]
        for turn, functions in entry.get("missed_function", {}).items():
            told = MORE.format(functions=[_schema(one)["function"] for one in functions])
            entry["question"][int(turn)] = [{"role": "user", "content": told}]
    return entries


def _schema(function: Mapping[str, Any]) -> dict[str, Any]:
    """As templates have it; the package's own types are Python's."""
    from bfcl_eval.constants.type_mappings import GORILLA_TO_OPENAPI

    def typed(value: Any) -> Any:
        if isinstance(value, list):
            return [typed(one) for one in value]
        if not isinstance(value, dict):
            return value
        kind = value.get("type")
        own = {"type": GORILLA_TO_OPENAPI[kind]} if isinstance(kind, str) else {}
        return {key: typed(one) for key, one in value.items()} | own

    names = ("name", "description", "parameters")
    return {"type": "function", "function": {name: typed(function[name]) for name in names}}


def _instances(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The APIs of an entry as they are in the beginning, by class."""
    from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING, STATELESS_CLASSES

    made = {}
    for name in entry["involved_classes"]:
        one = vars(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]))[name]()
        if name not in STATELESS_CLASSES:
            begins = copy.deepcopy(entry["initial_config"].get(name, {}))
            one._load_scenario(begins, long_context="long_context" in entry["id"])
        made[name] = one
    return made


def _method(live: Mapping[str, Any], name: str) -> Any:
    """The public method of this name, of the last API that has one: any, also one that is not offered yet, as in the package."""
    for one in reversed(list(live.values())):
        if not name.startswith("_") and callable(method := vars(type(one)).get(name)):
            return method.__get__(one)
    raise NameError(f"name '{name}' is not defined")


def _executed(live: Mapping[str, Any], name: str, arguments: Mapping[str, Any]) -> str:
    """What a function answers, as text, as the package writes it."""
    try:
        said = _method(live, name)(**arguments)
    except Exception as error:
        # Whatever a function of the package raises at such arguments is told to the policy there.
        return f"Error during execution: {error}"
    if not isinstance(said, dict):
        return str(said)
    if str(said.get("error", "")).startswith(head := "Invalid fields for update: "):
        # The names of a set: Python orders them anew in each process, and a resumed run is another one.
        said = {"error": head + ", ".join(sorted(said["error"].removeprefix(head).split(", ")))}
    try:
        return json.dumps(said)
    except (TypeError, ValueError):  # what json raises for what it cannot write
        return str(said)


def _read(call: str, live: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of a call that is written in Python, as the package's solutions are."""
    tree = ast.parse(call.strip(), mode="eval").body
    assert isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name), call
    name = tree.func.id
    code = _method(live, name).__func__
    while "__wrapped__" in vars(code):
        code = code.__wrapped__
    placed = code.__code__.co_varnames[1 : 1 + len(tree.args)]
    given = [*zip(placed, tree.args, strict=True), *((str(word.arg), word.value) for word in tree.keywords)]
    return name, {key: ast.literal_eval(value) for key, value in given}
