"""Chat messages: what makes a list of them, and how a person reads one, calls of tools included."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

# What an assistant's message may say beside its content: calls of tools, and the thoughts before it by the names that templates read.
BESIDE = ("tool_calls", "reasoning_content", "reasoning", "thinking")


def is_chat(value: Any) -> bool:
    """Whether it is a list of messages with role and content."""
    many = isinstance(value, Sequence) and bool(value)
    return many and all(isinstance(m, Mapping) and isinstance(m.get("role"), str) and "content" in m for m in value)


def spoken(message: Mapping[str, Any]) -> str:
    """The content, and each call as ``name(arguments)``."""
    content, calls = message.get("content"), message.get("tool_calls")
    told = [] if content is None or content == "" else [str(content)]
    return " ".join([*told, *map(_called, calls if isinstance(calls, list | tuple) else ())])


def _called(call: Any) -> str:
    function = (call.get("function") or call) if isinstance(call, Mapping) else {"name": call}
    arguments = function.get("arguments", "")
    given = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
    return f"{function.get('name')}({given})"
