"""An agent's program as an environment: what it asks is an observation, the answers are an action, and it ends by what it earned."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from gimbal.config.parts import REFERENCE, resolve
from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec
from gimbal.environments.calls import calls, without
from gimbal.records import Fault

# What is above this room and needs HTTP, which is an extra, is named in text, as the parts of a run are.
LIVE, HEARD = "gimbal.serve.live:UnderWay", "gimbal.serve.live:heard"
Reply = Mapping[str, Any]  # {"answers": [each as Said has it]}, or {"refused": why}


@dataclass(frozen=True, kw_only=True)
class Said:
    """One answer, as a client is to have it; ``pieces`` is the text of each of its tokens."""

    text: str
    ids: tuple[int, ...]
    prompt_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    stop: str
    pieces: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Program(AbstractEnvironmentSpec):
    """A program that is started for each episode with the address of its own session, and ended with it. See ``Agent`` for its fields.

    An action is the replies to what was asked last, () at first. It is answered with {"requests": [...]}, or at the end with
    {"score": ...}. A program that raises, ends with another exit code than 0, or passes a deadline has failed: an ``agent`` fault.
    """

    program: str
    sample: int = 0
    setup: float = 60.0
    acting: float = 120.0
    finishing: float = 30.0

    @property
    def fault(self) -> Fault:
        return "agent"

    @property
    def repeats(self) -> bool:
        return False

    def open(self) -> AbstractEnvironment:
        return resolve(LIVE)(self)


def replied(answers: Sequence[Said]) -> Reply:
    return {"answers": [asdict(said) for said in answers]}


def is_reference(program: str) -> bool:
    """Whether it names a Python function, and is no command line."""
    return REFERENCE.fullmatch(program) is not None and not any(letter.isspace() for letter in program)


def message(text: str, tools: Any, said: Said | None = None) -> dict[str, Any]:
    """The text, and the calls of tools in it where tools were offered. A call that is no JSON stays text.

    Calls are named after the tokens of the answer, so that an agent that is run again, and sends the names back, says the same again.
    """
    found = calls(text) if tools else []
    if not found or any(call.wrong for call in found):
        return {"role": "assistant", "content": text}
    drawn_from, made = (text,) if said is None else (said.prompt_ids, said.ids), []
    for number, call in enumerate(found):
        name = sha256(repr((drawn_from, number)).encode()).hexdigest()[:24]
        function = {"name": call.name, "arguments": json.dumps(call.arguments)}
        made.append({"id": f"call_{name}", "type": "function", "function": function})
    return {"role": "assistant", "content": without(text) or None, "tool_calls": made}


def begins(messages: Sequence[Mapping[str, Any]], said: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a chat begins with what was said. Clients add fields to messages, and write a call's arguments with other spaces."""
    return len(said) <= len(messages) and all(_gist(a) == _gist(b) for a, b in zip(said, messages, strict=False))


def _gist(said: Mapping[str, Any]) -> tuple[Any, ...]:
    calls = [call.get("function") or {} for call in said.get("tool_calls") or ()]
    return said["role"], said["content"] or "", [(call.get("name"), _arguments(call)) for call in calls]


def _arguments(call: Mapping[str, Any]) -> Any:
    given = call.get("arguments")
    try:
        return json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):  # no JSON, or too deep: as it is
        return given
