"""Answers in OpenAI's shapes, whole or in pieces, with token ids, log-probabilities and versions beside the text."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from gimbal.environments.calls import calls, without
from gimbal.policies.token import TokenPolicy, Tokens, of_tokens
from gimbal.records import Rollout
from gimbal.serve.asked import Asked
from gimbal.serve.exchanges import Exchange


def drawn(rollout: Rollout) -> list[int]:
    tokens = rollout.decisions
    assert isinstance(tokens, Tokens), type(tokens)
    return tokens.ids_NL[0, int(tokens.prompt_N[0]) : int(tokens.length_N[0])].tolist()


def visible(rollout: Rollout) -> str:
    """The text up to the stop string that ended it, as OpenAI's; the record keeps all tokens."""
    places = [rollout.text.find(stop) for stop in of_tokens(rollout.sampling).stop if stop in rollout.text]
    return rollout.text[: min(places)] if places and rollout.stop == "stop" else rollout.text


def settled(rollout: Rollout) -> str:
    """As much of an unfinished text as later tokens cannot take back: half a character or the beginning of a stop string may go."""
    text = rollout.text.rstrip("\ufffd")
    for stop in of_tokens(rollout.sampling).stop:
        tails = (length for length in range(min(len(stop), len(text)), 0, -1) if text.endswith(stop[:length]))
        text = text[: len(text) - next(tails, 0)]
    return text


def frame(asked: Asked, name: str, *, chunk: bool = False) -> dict[str, Any]:
    kind = "chat.completion" if asked.chat else "text_completion"
    return {
        "id": f"{'chatcmpl' if asked.chat else 'cmpl'}-{uuid4().hex}",
        "object": kind + ".chunk" * (chunk and asked.chat),
        "created": int(time.time()),
        "model": name,
    }


def reply(asked: Asked, exchanges: Sequence[Exchange], policy: TokenPolicy, name: str) -> dict[str, Any]:
    choices = [choice(asked, index, exchange, policy) for index, exchange in enumerate(exchanges)]
    return frame(asked, name) | {"choices": choices, "usage": usage(asked, exchanges)}


def usage(asked: Asked, exchanges: Sequence[Exchange]) -> dict[str, int]:
    """A prompt counts once, however many answers it has."""
    said = sum(len(drawn(exchange.rollout)) for exchange in exchanges)
    spent = sum(len(exchange.ids) - len(drawn(exchange.rollout)) for exchange in exchanges[:: asked.n])
    return {"prompt_tokens": spent, "completion_tokens": said, "total_tokens": spent + said}


def choice(asked: Asked, index: int, exchange: Exchange, policy: TokenPolicy) -> dict[str, Any]:
    rollout, ids = exchange.rollout, drawn(exchange.rollout)
    pieces, logprobs = [policy.tokenizer.decode([token]) for token in ids], rollout.behavior_S.tolist()
    made: dict[str, Any] = {"index": index, "finish_reason": "stop" if rollout.stop == "stop" else "length"}
    if asked.chat:
        message = _message(visible(rollout), asked)
        if "tool_calls" in message and made["finish_reason"] == "stop":
            made["finish_reason"] = "tool_calls"
        described = [
            {"token": piece, "logprob": x, "bytes": list(piece.encode()), "top_logprobs": []}
            for piece, x in zip(pieces, logprobs, strict=True)
        ]
        made |= {"message": message, "logprobs": {"content": described}}
    else:
        offsets = [0]
        for piece in pieces[:-1]:
            offsets.append(offsets[-1] + len(piece))
        offered = {"tokens": pieces, "token_logprobs": logprobs, "text_offset": offsets[: len(pieces)]}
        made |= {"text": visible(rollout), "logprobs": offered | {"top_logprobs": None}}
    extra = {"token_ids": ids, "prompt_token_ids": exchange.ids[: len(exchange.ids) - len(ids)]}
    return made | extra | {"token_versions": rollout.version_S.tolist()}


def _message(text: str, asked: Asked) -> dict[str, Any]:
    """The text, and the calls of tools in it where tools were offered. A call that is no JSON stays text."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    found = calls(text) if asked.tools else []
    if any(call.wrong for call in found):
        return message
    made = []
    for call in found:
        function = {"name": call.name, "arguments": json.dumps(call.arguments)}
        made.append({"id": f"call_{uuid4().hex[:24]}", "type": "function", "function": function})
    if made:
        message |= {"content": without(text) or None, "tool_calls": made}
    return message


def piece(asked: Asked, index: int, text: str, *, first: bool = False) -> dict[str, Any]:
    """A choice of a chunk: what was said since the last one."""
    if not asked.chat:
        return {"index": index, "text": text, "finish_reason": None, "logprobs": None}
    delta = ({"role": "assistant"} if first else {}) | {"content": text}
    return {"index": index, "delta": delta, "finish_reason": None, "logprobs": None}


def last_piece(whole: Mapping[str, Any], text: str, *, first: bool = False) -> dict[str, Any]:
    """The choice that ends a stream: the rest of the text, and all that stands beside a whole answer."""
    if "message" not in whole:
        return {**whole, "text": text}
    message = whole["message"]
    delta = ({"role": "assistant"} if first else {}) | {"content": text}
    if "tool_calls" in message:
        calls = [call | {"index": number} for number, call in enumerate(message["tool_calls"])]
        delta |= {"content": message["content"] or "", "tool_calls": calls}
    return {key: value for key, value in whole.items() if key != "message"} | {"delta": delta}


def event(data: Mapping[str, Any] | str) -> bytes:
    return b"data: " + (data if isinstance(data, str) else json.dumps(data)).encode() + b"\n\n"
