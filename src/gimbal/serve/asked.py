"""Parses a request over HTTP: every value is within bounds, or a ValueError states what is supported."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from gimbal.policies.token import Sampling
from gimbal.records import MOST_LENGTH

MOST_ANSWERS = 128  # of one request
MOST_STOPS, STOP_LENGTH = 16, 256
# What an answer cannot honour unless it has this value: its log-probabilities would not be of the distribution recorded.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "functions": ([],),
    "tool_choice": ("auto", "none"),
    "top_logprobs": (0,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "response_format": ({"type": "text"},),
}
BOUNDS: Mapping[str, tuple[float, float]] = {
    "n": (1, MOST_ANSWERS),
    "max_tokens": (1, MOST_LENGTH),
    "max_completion_tokens": (1, MOST_LENGTH),
    "seed": (-(2**63), 2**63 - 1),
    "temperature": (0, 100),
    "top_p": (0, 1),
    "top_k": (-1, 2**31),  # -1 is vLLM's "off"
    "min_p": (0, 1),
    "score": (-1e6, 1e6),
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Each of ``prompts`` (as text, or as tokens) or the one conversation of ``messages`` is answered ``n`` times."""

    session: str
    prompts: tuple[str | list[int], ...]
    messages: list[dict[str, Any]] | None  # of a chat
    tools: list[dict[str, Any]] | None
    sampling: Sampling
    n: int
    seed: int | None
    stream: bool
    usage: bool  # a stream ends with its count of tokens

    @property
    def chat(self) -> bool:
        return self.messages is not None


def understood(data: bytes, session: str, *, chat: bool, own: Sampling, fixed: bool) -> Asked:
    """``own`` is the default; ``fixed`` enforces it even if the request asks for another temperature or truncation."""
    body = _body(data)
    for key, neutral in NEUTRAL.items():
        if body.get(key) is not None and body[key] not in neutral:
            raise ValueError(f"{key}={_short(body[key])} is not supported; leave it out")
    asked = Asked(
        session=session,
        prompts=() if chat else _prompts(body.get("prompt")),
        messages=_messages(body.get("messages")) if chat else None,
        tools=_tools(body.get("tools"), chat),
        sampling=_sampling(body, own, fixed),
        n=_whole(body, "n", 1),
        seed=None if body.get("seed") is None else _whole(body, "seed", 0),
        stream=_flag(body, "stream"),
        usage=_flag(_mapping(body, "stream_options"), "include_usage"),
    )
    if (answers := asked.n * max(1, len(asked.prompts))) > MOST_ANSWERS:
        raise ValueError(f"n times the prompts is {answers}; one request is answered at most {MOST_ANSWERS} times")
    return asked


def rewarded(data: bytes) -> float:
    """The score of a session."""
    body = _body(data)
    if set(body) != {"score"} or body["score"] is None:
        raise ValueError('a reward is {"score": NUMBER}')
    return score_of(body["score"])


def score_of(value: Any) -> float:
    """Within bounds that advantages can be computed in."""
    if value is None:
        raise ValueError("score is None; it must be a number")
    return _number({"score": value}, "score", 0.0)


def _body(data: bytes) -> dict[str, Any]:
    constants: list[str] = []
    try:
        body = json.loads(data, parse_constant=constants.append)
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("the body has half of a surrogate pair, which is not text") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"the body is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from error
    except RecursionError as error:
        raise ValueError("the body is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"the body is not JSON ({error.msg}, line {error.lineno}, column {error.colno})") from error
    except ValueError as error:  # Python reads no more
        raise ValueError(f"the body holds a number of more than {sys.get_int_max_str_digits():,} digits") from error
    if constants:
        raise ValueError(f"the body holds {constants[0]}, which is not a JSON number")
    if not isinstance(body, dict):
        raise ValueError("the body is not a JSON object")
    return body


def _sampling(body: Mapping[str, Any], own: Sampling, fixed: bool) -> Sampling:
    longest = _whole(body, "max_completion_tokens", _whole(body, "max_tokens", own.max_length))
    changed = replace(own, max_length=longest, stop=_stops(body.get("stop"), own.stop))
    asked = replace(
        changed,
        temperature=_number(body, "temperature", own.temperature),
        top_p=_number(body, "top_p", own.top_p),
        top_k=max(0, _whole(body, "top_k", own.top_k)),
        min_p=_number(body, "min_p", own.min_p),
    )
    # What is ignored must be a request all the same: a client's mistake is the client's to hear of.
    return changed if fixed else asked


def _stops(given: Any, own: tuple[str, ...]) -> tuple[str, ...]:
    stops = own if given is None else (given,) if isinstance(given, str) else given
    several = isinstance(stops, list | tuple) and len(stops) <= MOST_STOPS
    if not several or not all(isinstance(item, str) and 0 < len(item) <= STOP_LENGTH for item in stops):
        raise ValueError(
            f"stop is {_short(given)}; it must be a string or a list of at most {MOST_STOPS} strings of 1 to {STOP_LENGTH} characters"
        )
    return tuple(stops)


def _prompts(prompt: Any) -> tuple[str | list[int], ...]:
    """A text, its tokens, or several of either. Whether the ids are the model's is for its tokenizer to say."""
    several = isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], int)
    found = tuple(prompt) if several else (prompt,)
    for item in found:
        # True is an int to Python, and no token.
        tokens = isinstance(item, list) and all(type(token) is int for token in item)
        if not item or not (isinstance(item, str) or tokens):
            raise ValueError(
                "prompt must be a text, a list of the model's token ids, or a list of either; none of them empty"
            )
    return found


def _messages(given: Any) -> list[dict[str, Any]]:
    """Messages whose content is text; parts of text are joined. An assistant that called tools may have said nothing (null)."""
    messages = []
    for message in given if isinstance(given, list) and given else [None]:
        message = message if isinstance(message, dict) else {}
        content, role = message.get("content"), message.get("role")
        if isinstance(content, list) and all(map(_is_text, content)):
            content = "".join(part["text"] for part in content)
        silent = content is None and role == "assistant"
        if not isinstance(role, str) or not (isinstance(content, str) or silent):
            raise ValueError(
                "messages must be a list of at least one object with a role and a content, which is text (null for an assistant that "
                "only called tools)"
            )
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list) or not all(
            isinstance(c, dict) and isinstance(c.get("function"), dict) for c in calls
        ):
            raise ValueError("tool_calls must be a list of objects, each with a function, which is an object too")
        messages.append(message | {"content": content})
    return messages


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _tools(given: Any, chat: bool) -> list[dict[str, Any]] | None:
    if not given:
        return None
    if not chat or not isinstance(given, list) or not all(isinstance(tool, dict) for tool in given):
        raise ValueError("tools is a list of objects, and goes with messages (/v1/chat/completions)")
    return given


def _number(body: Mapping[str, Any], key: str, default: float) -> float:
    value = body.get(key)
    if value is None:
        return default
    least, most = BOUNDS[key]
    if isinstance(value, bool) or not isinstance(value, Real):  # numpy's are
        raise ValueError(f"{key} is {_short(value)}; it must be a number")
    if not least <= body[key] <= most:  # which NaN does not either
        raise ValueError(f"{key} is {_short(value)}; it must lie between {least} and {most}")
    return float(value)


def _whole(body: Mapping[str, Any], key: str, default: int) -> int:
    value = body.get(key)
    if value is None:
        return default
    least, most = BOUNDS[key]
    if type(value) is not int:
        raise ValueError(f"{key} is {_short(value)}; it must be a whole number")
    if not least <= value <= most:
        raise ValueError(f"{key} is {_short(value)}; it must lie between {least} and {most}")
    return value


def _flag(body: Mapping[str, Any], key: str) -> bool:
    value = body.get(key)
    if not isinstance(value, bool | None):
        raise ValueError(f"{key} is {_short(value)}; it must be true or false")
    return bool(value)


def _mapping(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = body.get(key) or {}
    if not isinstance(value, dict):
        raise ValueError(f"{key} is {_short(value)}; it must be an object")
    return value


def _short(value: Any) -> str:
    """As written, but never a megabyte of it."""
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**100 else "a number of over 100 digits"
    return text if len(text) <= 60 else text[:57] + "..."
