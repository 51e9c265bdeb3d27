"""Calls of tools in what a model wrote, as Qwen's and Hermes' chat templates have them: the one place where they are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

OPEN, CLOSE = "<tool_call>", "</tool_call>"
FORM = f'a call is {OPEN}{{"name": NAME, "arguments": {{...}}}}{CLOSE}'
READER = json.JSONDecoder()


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A call that was written, or ``wrong``: what keeps it from being one."""

    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    wrong: str = ""


def calls(text: str) -> list[ToolCall]:
    """The calls of a text, in order. What stands between the brackets is read as JSON, so a bracket in a string ends nothing."""
    return [call for call, _ in _found(text)]


def without(text: str) -> str:
    """The text less its calls."""
    kept, at = [], 0
    for _, (start, end) in _found(text):
        kept.append(text[at:start])
        at = end
    return "".join([*kept, text[at:]]).strip()


def written(name: str, arguments: Mapping[str, Any]) -> str:
    """A call as ``calls`` reads it."""
    return f"{OPEN}\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n{CLOSE}"


def answer(name: str, said: str) -> dict[str, str]:
    """The message of a tool's answer."""
    return {"role": "tool", "name": name, "content": said}


def _found(text: str) -> Iterator[tuple[ToolCall, tuple[int, int]]]:
    """Each call, and where it stands."""
    start = text.find(OPEN)
    while start >= 0:
        begin = _skipped(text, start + len(OPEN))
        try:
            read, end = READER.raw_decode(text, begin)
            closed = text.startswith(CLOSE, _skipped(text, end))
        except (ValueError, RecursionError):  # what json raises for what it cannot read, or is nested too deeply
            read, end, closed = None, begin, False
        last = text.find(CLOSE, end)
        end = len(text) if last < 0 else last + len(CLOSE)
        yield _call(read) if closed else ToolCall(wrong=FORM), (start, end)
        start = text.find(OPEN, end)


def _skipped(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _call(read: Any) -> ToolCall:
    """``arguments`` may be JSON in a string, as OpenAI's clients have them."""
    arguments = read.get("arguments", {}) if isinstance(read, dict) else None
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):  # as above
            arguments = None
    if not isinstance(read, dict) or not isinstance(read.get("name"), str) or not isinstance(arguments, dict):
        return ToolCall(wrong=FORM)
    return ToolCall(name=read["name"], arguments=arguments)
