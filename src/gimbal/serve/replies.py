"""Answers in OpenAI's formats, whole or streamed, with token ids, log-probabilities and versions."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from gimbal.environments.program import Said, message
from gimbal.policies.token import TokenPolicy, Tokens, of_tokens
from gimbal.records import Rollout
from gimbal.serve.asked import Asked
from gimbal.serve.exchanges import Exchange


def of_exchange(exchange: Exchange, policy: TokenPolicy) -> Said:
    rollout, ids = exchange.rollout, drawn(exchange.rollout)
    return Said(
        text=visible(rollout),
        ids=tuple(ids),
        prompt_ids=tuple(exchange.ids[: len(exchange.ids) - len(ids)]),
        logprobs=tuple(rollout.behavior_S.tolist()),
        versions=tuple(rollout.version_S.tolist()),
        stop=rollout.stop,
        pieces=tuple(policy.tokenizer.decode([token]) for token in ids),
    )


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


def reply(asked: Asked, answers: Sequence[Said], name: str) -> dict[str, Any]:
    choices = [choice(asked, index, said) for index, said in enumerate(answers)]
    return frame(asked, name) | {"choices": choices, "usage": usage(asked, answers)}


def usage(asked: Asked, answers: Sequence[Said]) -> dict[str, int]:
    """A prompt counts once, regardless of its number of answers."""
    own = sum(len(said.ids) for said in answers)
    spent = sum(len(said.prompt_ids) for said in answers[:: asked.n])
    return {"prompt_tokens": spent, "completion_tokens": own, "total_tokens": spent + own}


def choice(asked: Asked, index: int, said: Said) -> dict[str, Any]:
    made: dict[str, Any] = {"index": index, "finish_reason": "stop" if said.stop == "stop" else "length"}
    if asked.chat:
        told = message(said.text, asked.tools, said)
        if "tool_calls" in told and made["finish_reason"] == "stop":
            made["finish_reason"] = "tool_calls"
        described = [
            {"token": piece, "logprob": x, "bytes": list(piece.encode()), "top_logprobs": []}
            for piece, x in zip(said.pieces, said.logprobs, strict=True)
        ]
        made |= {"message": told, "logprobs": {"content": described}}
    else:
        offsets = [0]
        for piece in said.pieces[:-1]:
            offsets.append(offsets[-1] + len(piece))
        offered = {"tokens": list(said.pieces), "token_logprobs": list(said.logprobs)}
        offered |= {"text_offset": offsets[: len(said.pieces)]}
        made |= {"text": said.text, "logprobs": offered | {"top_logprobs": None}}
    extra = {"token_ids": list(said.ids), "prompt_token_ids": list(said.prompt_ids)}
    return made | extra | {"token_versions": list(said.versions)}


def piece(asked: Asked, index: int, text: str, *, first: bool) -> dict[str, Any]:
    """A choice of a chunk: what was said since the last one."""
    if not asked.chat:
        return {"index": index, "text": text, "finish_reason": None, "logprobs": None}
    delta = ({"role": "assistant"} if first else {}) | {"content": text}
    return {"index": index, "delta": delta, "finish_reason": None, "logprobs": None}


def last_piece(whole: Mapping[str, Any], text: str, *, first: bool) -> dict[str, Any]:
    """The choice that ends a stream: the rest of the text, and the other fields of a whole answer."""
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
