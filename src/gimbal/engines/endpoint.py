"""An OpenAI-compatible endpoint over any engine of tokens, for agents written in any framework. It records what it says.

    POST /v1/completions, /v1/chat/completions      as OpenAI's, with the token ids, log-probabilities and versions beside the text
    GET  /v1/models, /health

A path before /v1 names a session: an agent whose base_url is http://HOST:PORT/episode-7/v1 is recorded as episode-7. One thread
drives the engine, so requests that arrive together are drawn together.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from uuid import uuid4

from torch import Tensor

from gimbal.engines.base import AbstractEngine, Request
from gimbal.engines.exchanges import Exchange, continued, rows, written
from gimbal.policies.token import TokenPolicy, Tokens
from gimbal.records import Rollout, Sampling, Task

BODY_BYTES = 1 << 24
NOWHERE = "there is no {}; POST to /v1/chat/completions or /v1/completions"
# What an answer cannot honour unless it has this value: its log-probabilities would not be of the distribution recorded.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "tools": ([],),
    "functions": ([],),
    "top_logprobs": (0,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "response_format": ({"type": "text"},),
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request, understood. Each of its ``prompts`` is answered ``n`` times."""

    session: str
    chat: bool
    prompts: list[tuple[str, list[int]]]  # as text, and as tokens
    messages: list[dict[str, Any]] | None
    sampling: Sampling
    n: int
    seed: int | None
    stream: bool


class CompletionServer:
    """A server over a live engine, which nobody else may step from then on. ``with`` closes it.

    ``sampling`` holds where a request says nothing; ``fixed`` holds it also where a request asks for another temperature or truncation
    (agents tend to ask for temperature 0, which cannot be trained on). ``record`` is the file that each exchange is appended to. The
    newest ``keep`` sessions are held in memory until they are taken; None is all.
    """

    def __init__(
        self,
        engine: AbstractEngine,
        policy: TokenPolicy,
        sampling: Sampling,
        *,
        name: str = "policy",
        seed: int = 0,
        host: str = "127.0.0.1",
        port: int = 0,
        fixed: bool = False,
        record: Path | None = None,
        keep: int | None = None,
    ) -> None:
        self.engine, self.policy, self.sampling, self.name = engine, policy, sampling, name
        self.seed, self.fixed, self.record, self.keep = seed, fixed, record, keep
        self.sessions: dict[str, list[Exchange]] = {}
        self.count = 0  # of requests to the engine
        self.failure: BaseException | None = None
        self._inbox: SimpleQueue[tuple[Request, Future[Rollout]] | None] = SimpleQueue()
        self._engine_lock, self._lock = threading.Lock(), threading.Lock()
        if record is not None:
            record.parent.mkdir(parents=True, exist_ok=True)
        self._server = _Server((host, port), _Handler)
        self._server.endpoint = self
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._drive, self._server.serve_forever)]
        for thread in self._threads:
            thread.start()

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host}:{port}"

    def __enter__(self) -> CompletionServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening; what is being drawn is given up."""
        self._server.shutdown()
        self._server.server_close()
        self._inbox.put(None)
        self._threads[0].join()

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        """New weights, between two steps of the engine: answers under way go on with them."""
        with self._engine_lock:
            self.engine.load(version, state)

    def take(self, session: str = "") -> list[Rollout]:
        """The rows of a session (see ``exchanges.rows``), which is then forgotten. What they earned is for the caller to say."""
        with self._lock:
            return rows(self.sessions.pop(session, []))

    def answer(self, asked: Asked) -> list[Exchange]:
        """Blocks until all answers are drawn; they are on record when it returns."""
        futures = []
        for text, ids in asked.prompts:
            for sample in range(asked.n):
                with self._lock:
                    number, self.count = self.count, self.count + 1
                # A seed of the client's own gives the same answer again; without one every answer has a stream of its own.
                seeded = asked.seed is not None
                columns: dict[str, Any] = {"prompt_ids": ids} | ({"messages": asked.messages} if asked.chat else {})
                task = Task(id=asked.session if seeded else f"{asked.session}/{number}", prompt=text, columns=columns)
                seed = asked.seed if asked.seed is not None else self.seed
                request = Request(group=number, task=task, sample=sample, sampling=asked.sampling, seed=seed)
                future: Future[Rollout] = Future()
                self._inbox.put((request, future))
                futures.append((text, future))
        exchanges = []
        for text, future in futures:
            rollout = future.result()
            said = self.policy.tokenizer.decode(drawn(rollout))
            exchanges.append(Exchange(session=asked.session, rollout=rollout, text=text + said))
        self._remember(exchanges)
        return exchanges

    def _remember(self, exchanges: Sequence[Exchange]) -> None:
        with self._lock:
            for exchange in exchanges:
                self.sessions[exchange.session] = [*self.sessions.pop(exchange.session, []), exchange]
            while self.keep is not None and len(self.sessions) > self.keep:
                del self.sessions[next(iter(self.sessions))]
            if self.record is not None:
                with self.record.open("a", encoding="utf-8") as file:
                    file.writelines(written(exchange) + "\n" for exchange in exchanges)

    def _drive(self) -> None:
        """Requests in, steps of the engine, rollouts out; an error of the engine is everybody's answer from then on."""
        waiting: dict[tuple[int, int], Future[Rollout]] = {}
        while True:
            try:
                item = self._inbox.get(block=not waiting)
                if item is None:
                    self.failure = self.failure or ConnectionAbortedError("the endpoint is closing")
                    break
                request, future = item
                if self.failure is not None:
                    future.set_exception(self.failure)
                    continue
                try:
                    with self._engine_lock:
                        self.engine.submit(request)
                    waiting[request.key] = future
                except Exception as error:  # of this request alone
                    future.set_exception(error)
                continue  # take in all that is there before the next step
            except Empty:
                pass
            try:
                with self._engine_lock:
                    finished = self.engine.step()
            except Exception as error:
                self.failure = RuntimeError(f"the engine failed: {error}")
                for future in waiting.values():
                    future.set_exception(self.failure)
                waiting.clear()
                continue
            for done in finished:
                waiting.pop(done.key).set_result(done.rollout)
        for future in waiting.values():
            future.set_exception(self.failure)

    def understood(self, session: str, chat: bool, body: Mapping[str, Any]) -> Asked:
        """The request, or a ValueError that says what this endpoint cannot do."""
        for key, neutral in NEUTRAL.items():
            if body.get(key) is not None and body[key] not in neutral:
                raise ValueError(f"{key}={body[key]!r} is not served here; leave it out")
        messages = _messages(body.get("messages")) if chat else None
        prompts = [self._chat(session, messages)] if messages is not None else self._prompts(body.get("prompt"))
        sampling, room = self._sampling(body), self.policy.model.config.max_position_embeddings
        for _, ids in prompts:
            if len(ids) + sampling.max_length > room:
                raise ValueError(
                    f"a prompt of {len(ids)} tokens and {sampling.max_length} more pass the model's context of {room} tokens; "
                    "shorten the prompt, or ask for a lower max_tokens"
                )
        return Asked(
            session=session,
            chat=chat,
            prompts=prompts,
            messages=messages,
            sampling=sampling,
            n=_number(body, "n", int, 1),
            seed=None if body.get("seed") is None else _number(body, "seed", int, 0),
            stream=bool(body.get("stream")),
        )

    def _sampling(self, body: Mapping[str, Any]) -> Sampling:
        own, stop = self.sampling, body.get("stop")
        longest = _number(body, "max_completion_tokens", int, _number(body, "max_tokens", int, own.max_length))
        stops = own.stop if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
        if not all(isinstance(item, str) and item for item in stops):
            raise ValueError(f"stop is {stop!r}; it is a string or a list of strings, none of them empty")
        changed = replace(own, max_length=longest, stop=stops)
        if self.fixed:
            return changed
        return replace(
            changed,
            temperature=_number(body, "temperature", float, own.temperature),
            top_p=_number(body, "top_p", float, own.top_p),
            top_k=max(0, _number(body, "top_k", int, own.top_k)),  # -1 is vLLM's "off"
            min_p=_number(body, "min_p", float, own.min_p),
        )

    def _chat(self, session: str, messages: list[dict[str, Any]]) -> tuple[str, list[int]]:
        """Text and tokens. What goes on from an answer of this session begins with the very tokens that were drawn."""
        tokenizer = self.policy.tokenizer
        if tokenizer.chat_template is None:
            raise ValueError("the model has no chat template; use /v1/completions")
        try:
            text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        except Exception as error:  # of a template, which may raise anything
            raise ValueError(f"the model's chat template refuses these messages: {error}") from error
        with self._lock:
            before = continued(self.sessions.get(session, []), text)
        if before is None:
            return text, tokenizer.encode(text, add_special_tokens=False)
        rest = text[len(before.text) :]
        return text, before.ids + (tokenizer.encode(rest, add_special_tokens=False) if rest else [])

    def _prompts(self, prompt: Any) -> list[tuple[str, list[int]]]:
        """A text, its tokens, or several of either."""
        tokenizer = self.policy.tokenizer
        several = isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], int)
        found = []
        for item in prompt if several else [prompt]:
            if isinstance(item, str) and item:
                found.append((item, tokenizer.encode(item, add_special_tokens=True)))
            elif isinstance(item, list) and item and all(isinstance(x, int) and 0 <= x < len(tokenizer) for x in item):
                found.append((tokenizer.decode(item), item))
            else:
                raise ValueError(
                    "prompt is a text, a list of the model's token ids, or a list of either; none of them empty"
                )
        return found


def drawn(rollout: Rollout) -> list[int]:
    tokens = rollout.decisions
    assert isinstance(tokens, Tokens), type(tokens)
    return tokens.ids_NL[0, int(tokens.prompt_N[0]) : int(tokens.length_N[0])].tolist()


def _place(path: str) -> tuple[str, bool] | None:
    """(session, whether it is a chat), if anything is there."""
    for end, chat in (("/v1/chat/completions", True), ("/v1/completions", False)):
        if path.endswith(end):
            return path.removesuffix(end).strip("/"), chat
    return None


def _messages(given: Any) -> list[dict[str, Any]]:
    """Messages whose content is text; parts of text are joined."""
    messages = []
    for message in given if isinstance(given, list) and given else [None]:
        message = message if isinstance(message, dict) else {}
        content = message.get("content")
        if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
            content = "".join(str(part.get("text", "")) for part in content)
        if not isinstance(content, str) or not isinstance(message.get("role"), str):
            raise ValueError("messages is a list of at least one object with a role and a content, which is text")
        messages.append(message | {"content": content})
    return messages


def _number(body: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    value = body.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else int):
        raise ValueError(f"{key} is {value!r}; it must be {'a number' if kind is float else 'a whole number'}")
    if key in ("n", "max_tokens", "max_completion_tokens") and value < 1:
        raise ValueError(f"{key} is {value}; it must be at least 1")
    return kind(value)


def _visible(rollout: Rollout) -> str:
    """The text up to the stop string that ended it, as OpenAI's; the record keeps all tokens."""
    places = [rollout.text.find(stop) for stop in rollout.sampling.stop if stop in rollout.text]
    return rollout.text[: min(places)] if places and rollout.stop == "stop" else rollout.text


def reply(asked: Asked, exchanges: Sequence[Exchange], policy: TokenPolicy, name: str) -> dict[str, Any]:
    """The body of the answer: OpenAI's shape, and in each choice token_ids, prompt_token_ids and token_versions beside it."""
    choices, spent, said = [], 0, 0
    for index, exchange in enumerate(exchanges):
        rollout, ids = exchange.rollout, drawn(exchange.rollout)
        pieces, logprobs = [policy.tokenizer.decode([token]) for token in ids], rollout.behavior_S.tolist()
        prompt_ids = exchange.ids[: len(exchange.ids) - len(ids)]
        spent, said = spent + (len(prompt_ids) if index % asked.n == 0 else 0), said + len(ids)
        choice: dict[str, Any] = {"index": index, "finish_reason": "stop" if rollout.stop == "stop" else "length"}
        if asked.chat:
            described = [
                {"token": piece, "logprob": x, "bytes": list(piece.encode()), "top_logprobs": []}
                for piece, x in zip(pieces, logprobs, strict=True)
            ]
            choice["message"] = {"role": "assistant", "content": _visible(rollout)}
            choice["logprobs"] = {"content": described}
        else:
            offsets = [sum(map(len, pieces[:place])) for place in range(len(pieces))]
            choice["text"] = _visible(rollout)
            choice["logprobs"] = {
                "tokens": pieces,
                "token_logprobs": logprobs,
                "text_offset": offsets,
                "top_logprobs": None,
            }
        extra = {"token_ids": ids, "prompt_token_ids": prompt_ids, "token_versions": rollout.version_S.tolist()}
        choices.append(choice | extra)
    return {
        "id": f"{'chatcmpl' if asked.chat else 'cmpl'}-{uuid4().hex}",
        "object": "chat.completion" if asked.chat else "text_completion",
        "created": int(time.time()),
        "model": name,
        "choices": choices,
        "usage": {"prompt_tokens": spent, "completion_tokens": said, "total_tokens": spent + said},
    }


def streamed(answer: Mapping[str, Any], chat: bool) -> bytes:
    """The same as server-sent events, each choice in one piece: for clients that insist, not to see tokens sooner."""
    chunks = []
    for choice in answer["choices"]:
        if chat:
            choice = {key: value for key, value in choice.items() if key != "message"} | {"delta": choice["message"]}
        chunk = dict(answer) | {"choices": [choice]}
        chunk |= {"object": "chat.completion.chunk"} if chat else {}
        chunks.append(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    return b"".join(chunks) + b"data: [DONE]\n\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # agents come in crowds
    endpoint: CompletionServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        endpoint = self.server.endpoint
        if self.path == "/health":
            failure = endpoint.failure
            self._send(500 if failure else 200, {"version": endpoint.engine.version, "error": str(failure or "")})
        elif self.path.endswith("/v1/models"):
            self._send(
                200, {"object": "list", "data": [{"id": endpoint.name, "object": "model", "owned_by": "gimbal"}]}
            )
        else:
            self._refuse(404, NOWHERE.format(self.path))

    def do_POST(self) -> None:
        endpoint, length = self.server.endpoint, self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or int(length) > BODY_BYTES:
            self.close_connection = True
            return self._refuse(413, f"a body has a Content-Length of at most {BODY_BYTES} bytes")
        data, place = self.rfile.read(int(length)), _place(self.path.partition("?")[0])
        if place is None:
            return self._refuse(404, NOWHERE.format(self.path))
        try:
            body = json.loads(data)
            if not isinstance(body, dict):
                raise ValueError("the body is no JSON object")
            asked = endpoint.understood(*place, body)
            exchanges = endpoint.answer(asked)
        except (ValueError, RecursionError) as error:
            return self._refuse(400, str(error))
        except (RuntimeError, OSError) as error:
            return self._refuse(500, str(error))
        answer = reply(asked, exchanges, endpoint.policy, endpoint.name)
        if asked.stream:
            self._write(200, "text/event-stream", streamed(answer, asked.chat))
        else:
            self._send(200, answer)

    def _refuse(self, status: int, sentence: str) -> None:
        kind = "invalid_request_error" if status < 500 else "server_error"
        self._send(status, {"error": {"message": sentence, "type": kind, "param": None, "code": None}})

    def _send(self, status: int, body: Mapping[str, Any]) -> None:
        self._write(status, "application/json", json.dumps(body).encode())

    def _write(self, status: int, kind: str, data: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:  # the client has gone; what was said to it is on record all the same
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: requests are on record."""
