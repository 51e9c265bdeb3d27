"""Users' reward functions: how one is found, which shape it has, how it is called. Runs in the worker: no torch
here.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any

from gimbal.config.parts import loading

Values = list[float | None]
Call = Mapping[str, Any]  # what function.Function._call lays out
SHAPES = (
    "f(prompts, completions, **columns) -> list of floats, f(group) -> list of floats, f(rollout) -> float, or "
    "f(data_source, solution_str, ground_truth, extra_info) -> float"
)


def make(source: str | Callable[..., Any]) -> tuple[Callable[[Call], Values], list[str]]:
    """The function under one signature, Call -> a score (or None) for each rollout, and which costly parts of a call
    it reads.
    """
    function = _find(source) if isinstance(source, str) else source
    if isinstance(function, type):
        raise ValueError(f"it is a class; a part is written with brackets, {function.__name__}()")
    parameters = inspect.signature(function).parameters
    if "solution_str" in parameters:
        return lambda call: _each([function(**_verl(call, text)) for text in call["completions"]]), []
    if "completions" in parameters:
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        needs = ["completion_ids"] if "completion_ids" in parameters else ["columns"] if takes_all else []
        return lambda call: _whole(function(**_trl(call, parameters))), needs
    if "group" in parameters or "rollout" in parameters:
        importlib.import_module("gimbal.records")  # with torch: now, while the run starts, not in the first call
    if "group" in parameters:
        return lambda call: _whole(function(call["group"])), ["group"]
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
        module = importlib.import_module(place)
    if name not in vars(module):
        raise ValueError(f"{place} holds no {name}")
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
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return offered
    missing = [n for n, p in parameters.items() if p.default is p.empty and n not in offered]
    if missing:
        raise ValueError(f"it asks for {missing}; there are {sorted(offered)}")
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
    """Per-rollout results; coroutines run side by side. A dict means its ``score``, as in verl."""
    if any(inspect.isawaitable(value) for value in values):

        async def together() -> list[Any]:
            return await asyncio.gather(*values)

        values = asyncio.run(together())
    return [_number(value["score"] if isinstance(value, Mapping) else value) for value in values]


def _whole(values: Any) -> Values:
    if inspect.iscoroutine(values):
        values = asyncio.run(values)
    try:
        if isinstance(
            values, str | bytes | Mapping | Set
        ):  # they can be gone through, and what comes is no score of anything
            raise TypeError
        return [_number(value) for value in values]
    except TypeError as error:
        raise TypeError(f"it returned {values!r:.80}; expected a list of floats, one for each completion") from error


def _number(value: Any) -> float | None:
    """A plain float of whatever number it is (numpy's and torch's too); text is no number even where it would parse."""
    if isinstance(value, str | bytes):
        raise TypeError(f"a score is a number or None, not {value!r:.80}")
    return None if value is None else float(value)
