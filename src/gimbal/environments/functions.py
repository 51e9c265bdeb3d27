"""Python functions as tools: their schemas, and parsing of the model's calls."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gimbal.config.classes import nearest
from gimbal.config.parts import REFERENCE, label, read, resolve
from gimbal.environments.calls import CLOSE, FORM, OPEN, ToolCall, answer, calls
from gimbal.environments.signatures import parameters, schema
from gimbal.environments.tools import AbstractTool
from gimbal.records import Task, is_chat


@dataclass(frozen=True, kw_only=True)
class Functions(AbstractTool):
    """Python functions as tools: def search(query: str, limit: int = 5) -> str, or "file.py:search".

    Their schemas are derived from signatures and docstrings, and passed to the model's chat template if the task is a chat. The policy
    calls one with <tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>, and receives its return value: text
    unchanged, anything else as JSON; in a chat as a message with the role tool, otherwise between <tool_response> and </tool_response>.

    - An invalid call (no JSON, no such function, a missing or wrong argument) is the policy's mistake, answered with a sentence that
      begins with "error: ".
    - A function that raises is broken, which is not the policy's fault: its episode ends as a ``tool_error``.
    - A signature without a schema is refused here, in one sentence.

    A function must keep no state between calls: after a resume or a branch it is not called again for earlier answers. It is called in
    gimbal's process, from several threads; an async one is awaited.
    """

    functions: tuple[str | Callable[..., Any], ...]

    def __post_init__(self) -> None:
        given = self.functions if isinstance(self.functions, tuple | list) else (self.functions,)
        names = tuple(each if isinstance(each, str) else _label(each) for each in given)
        object.__setattr__(self, "functions", names)
        if not names:
            raise ValueError("Functions has no functions: Functions(functions=(search,))")
        called = [schema(resolve(each))["function"]["name"] for each in names]
        if twice := sorted({name for name in called if called.count(name) > 1}):
            raise ValueError(f"Functions has several functions called {twice[0]}; a model calls them by name")

    @property
    def triggers(self) -> tuple[str, ...]:
        return (CLOSE,)

    @cached_property
    def _by_name(self) -> dict[str, Callable[..., Any]]:
        found = [resolve(str(each)) for each in self.functions]
        return {function.__name__: function for function in found}

    @cached_property
    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(map(schema, self._by_name.values()))

    def __call__(self, task: Task, text: str) -> str | list[dict[str, str]] | None:
        if not text.rstrip().endswith(CLOSE):
            return None
        name, arguments, wrong = self._called(text)
        said = f"error: {wrong}" if wrong else _told(_done(self._by_name[name], arguments), name)
        if is_chat(task.columns.get("messages")):
            return [answer(name, said)]
        return f"\n<tool_response>\n{said}\n</tool_response>\n"

    def refused(self, said: str | list[dict[str, str]] | None) -> bool:
        words = said if isinstance(said, str) else "".join(message["content"] for message in said or ())
        return words.removeprefix("\n<tool_response>\n").startswith("error: ")

    def _called(self, text: str) -> tuple[str, dict[str, Any], str]:
        """(The function's name, its arguments, what is wrong with the call) of the last call in a text."""
        call = next(iter(calls(text[max(0, text.rfind(OPEN)) :])), ToolCall(wrong=FORM))
        return called(call, self._by_name)


def called(call: ToolCall, by_name: Mapping[str, Callable[..., Any]]) -> tuple[str, dict[str, Any], str]:
    """(The function's name, its arguments, what is wrong with the call)."""
    if call.wrong:
        return "", {}, call.wrong
    if call.name not in by_name:
        name, offered = _text(call.name), ", ".join(by_name)
        return name, {}, f"there is no tool {name}{nearest(name, by_name)}; there are {offered}"
    arguments, wrong = _bound(by_name[call.name], call.arguments)
    return call.name, arguments, _text(wrong)


def _text(said: str) -> str:
    """Without halves of characters, which JSON can hold and no answer may: else a policy could void its own episode by them."""
    return said.encode(errors="replace").decode()


def _label(function: Any) -> str:
    """Where it is found again. A ValueError for what has no schema comes first: it says more."""
    schema(function)
    return label(function)


def _bound(function: Callable[..., Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The arguments of the types that the signature names, and what is wrong with them."""
    kinds, name = parameters(function), function.__name__
    for each in given:
        if each not in kinds:
            return {}, f"{name} has no argument {each}{nearest(each, kinds)}"
    for each, parameter in inspect.signature(function).parameters.items():
        if parameter.default is parameter.empty and each not in given:
            return {}, f"{name} needs the argument {each}"
    try:
        return {each: read(value, kinds[each], each) for each, value in given.items()}, ""
    except ValueError as error:
        return {}, str(error)


def _done(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    said = function(**arguments)
    return asyncio.run(said) if inspect.iscoroutine(said) else said


def _told(said: Any, name: str) -> str:
    if isinstance(said, str):
        return said
    try:
        return json.dumps(said)
    except (TypeError, ValueError) as error:  # what json raises for what it cannot write
        raise TypeError(f"{name} returned {type(said).__name__}; a tool returns text, or what JSON holds") from error


def short(value: Any) -> Any:
    """A function, several, or the reference to one, as a tool; anything else as it is."""
    if isinstance(value, str) and REFERENCE.fullmatch(value):
        return Functions(functions=(str(value),)) if inspect.isfunction(resolve(value)) else value
    if inspect.isfunction(value):
        return Functions(functions=(value,))
    if isinstance(value, list | tuple) and value and all(map(inspect.isfunction, value)):
        return Functions(functions=tuple(value))
    return value
