"""Users' reward functions: how one is found, which signature it has, how it is called. Runs in the worker: no torch
here.

A ValueError raised here is a message to the user, about the reward; the sandbox's _worker.py passes it on unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any

from gimbal.config.classes import nearest
from gimbal.config.parts import loading

Values = list[float | None]
Call = Mapping[str, Any]  # what function.Function._call lays out
COLUMN = "column "  # before the name of a column that a function needs
TEXTS, TOGETHER = "texts", "together"  # what it scores by: texts alone; all rollouts of a group beside each other
VERL = ("data_source", "solution_str", "ground_truth", "extra_info")
GIVEN = ("prompts", "completions", "completion_ids")  # passed to every call, besides the task's columns
SHAPES = (
    "f(prompts, completions, **columns) -> list of floats, f(group) -> list of floats, f(rollout) -> float (a picture is "
    "rollout.decisions.sample_ND[0]), or f(data_source, solution_str, ground_truth, extra_info) -> float"
)


def make(source: str | Callable[..., Any]) -> tuple[Callable[[Call], Values], list[str]]:
    """The function under one signature, Call -> a score (or None) for each rollout, and what it needs: costly parts of a
    call by name, and each column that it cannot do without as COLUMN + its name.
    """
    function = _find(source) if isinstance(source, str) else source
    if isinstance(function, type):
        raise ValueError(f"it is a class; write a part with brackets, {function.__name__}()")
    if not callable(function):
        raise ValueError(f"it is {function!r:.60}; a reward is a function, {SHAPES}")
    parameters = inspect.signature(function).parameters
    named = (p for p in parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL))
    required = [p.name for p in named if p.default is p.empty]
    if "solution_str" in parameters and set(required) <= set(VERL):
        return lambda call: _each(
            [function(**_taken(_verl(call, text), parameters)) for text in call["completions"]]
        ), [TEXTS]
    if "completions" in parameters:
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        needs = ["completion_ids"] if "completion_ids" in parameters else ["columns"] if takes_all else []
        columns = [name for name in required if name not in GIVEN]
        return (
            lambda call: _whole(function(**_trl(call, parameters)), len(call["completions"])),
            [TEXTS, *needs, *(COLUMN + name for name in columns)],
        )
    if "group" in parameters or "rollout" in parameters:
        importlib.import_module("gimbal.records")  # with torch: now, while the run starts, not in the first call
    if "group" in parameters:
        return lambda call: _whole(function(call["group"]), len(call["completions"])), ["group", TOGETHER]
    if "rollout" in parameters:
        return lambda call: _each([function(rollout) for rollout in call["group"].rollouts]), ["group"]
    raise ValueError(f"its parameters are ({', '.join(parameters)}); a reward is {SHAPES}")


def _find(source: str) -> Callable[..., Any]:
    place, _, name = source.rpartition(":")
    if place.endswith(".py"):
        path = Path(place)
        sys.path.insert(0, str(path.parent))  # its neighbours are importable, as when it is run as a script
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None, place
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        with loading(path):
            spec.loader.exec_module(module)
    else:
        sys.path.append(os.getcwd())  # where a user's own modules are, for those who start from a console script
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise  # it is there, and imports something that is not
            raise ValueError(f"there is no module {error.name}; a function in a file is path/file.py:{name}") from error
    if name not in vars(module):
        raise ValueError(f"{Path(place).name} has no {name}{nearest(name, vars(module))}")
    return vars(module)[name]


def _trl(call: Call, parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """TRL's keywords: batched lists, the task's columns repeated. Chat prompts make chat completions."""
    count, messages = len(call["completions"]), call["columns"].get("messages")
    offered = {key: [value] * count for key, value in call["columns"].items()}
    if messages is None:
        offered |= {"prompts": [call["prompt"]] * count, "completions": call["completions"]}
    else:
        replies = [[{"role": "assistant", "content": text}] for text in call["completions"]]
        offered |= {"prompts": [messages] * count, "completions": replies}
    offered["completion_ids"] = call["completion_ids"]
    return _taken(offered, parameters)


def _taken(offered: dict[str, Any], parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """The offered arguments that a function takes: all of them, or those its parameters name."""
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return offered
    return {name: value for name, value in offered.items() if name in parameters}


def _verl(call: Call, text: str) -> dict[str, Any]:
    columns = call["columns"]
    truth = columns["reward_model"]["ground_truth"] if "reward_model" in columns else columns["answer"]
    return {
        "data_source": columns["source"],
        "solution_str": text,
        "ground_truth": truth,
        "extra_info": columns.get("extra_info", columns),
    }


def _each(values: list[Any]) -> Values:
    """Per-rollout results; coroutines run concurrently. A dict means its ``score``, as in verl."""
    if any(inspect.isawaitable(value) for value in values):

        async def together() -> list[Any]:
            return await asyncio.gather(*values)

        values = asyncio.run(together())
    return [_number(_score(value), at, " for the one completion that it is given") for at, value in enumerate(values)]


def _score(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    if "score" not in value:
        raise ValueError(f"it returned the dict {value!r:.80}, which has no key 'score'; return a number, or that key")
    return value["score"]


def _whole(values: Any, count: int) -> Values:
    if inspect.iscoroutine(values):
        values = asyncio.run(values)
    try:
        items = iter(values)
    except TypeError:  # a lone number, None, an array of no dimensions
        items = None
    # Text, keys and members of a set are iterable too, but are not scores.
    if items is not None and not isinstance(values, str | bytes | Mapping | Set):
        return [_number(value, at) for at, value in enumerate(items)]
    raise ValueError(
        f"it returned {values!r:.80}; expected a list of {count} numbers, one for each completion, as in "
        "`return [float(len(text)) for text in completions]`"
    )


def _number(value: Any, at: int, one: str = "") -> float | None:
    """A plain float from any number (numpy's and torch's too); text is not a number even if it would parse."""
    if value is None:
        return None
    with contextlib.suppress(TypeError, ValueError):  # what float() raises for what is no number
        if not isinstance(value, str | bytes):
            return float(value)
    raise ValueError(
        f"it returned {value!r:.80} as the score of completion {at}; expected a number{one}, or None where the reward does "
        "not apply"
    )
