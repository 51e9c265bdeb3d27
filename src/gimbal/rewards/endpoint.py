"""A language model behind an OpenAI-compatible API, as a judge."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gimbal.rewards.asking import AbstractJudge, JudgeError, Pictured

REPLY_BYTES = 1 << 22
LONGEST_PAUSE = 30.0
PASSING = (408, 409, 425, 429, 500, 502, 503, 504)  # worth another attempt


class _Stay(urllib.request.HTTPRedirectHandler):
    """A redirect is a refusal: the key must not travel to another host."""

    def redirect_request(self, *arguments: Any, **more: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_Stay)


@dataclass(frozen=True, kw_only=True)
class Endpoint(AbstractJudge):
    """Sends the question as the user's message to POST {base_url}/chat/completions; the answer is the text of the first choice.
    Pictures go along as ``image_url`` parts.

    vLLM, SGLang, llama.cpp, Ollama and hosted services speak this. The key is read from the environment variable ``key_variable`` at
    every question and never saved; "" sends none. ``options`` are merged into the request's body and override it.

    An attempt ends after ``timeout`` seconds without a byte. It is retried, up to ``attempts`` in total, if the server cannot be
    reached, is slow, or reports that it is busy or broken (408, 409, 425, 429, 500, 502 to 504), after a ``pause`` that doubles each
    time, or as long as the server asks, at most 30 seconds. Other statuses are not retried.
    """

    base_url: str = "http://127.0.0.1:8000/v1"
    model: str = "judge"
    system: str = ""
    temperature: float = 0.0
    max_tokens: int = 512
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    key_variable: str = ""
    timeout: float = 30.0
    attempts: int = 3
    pause: float = 1.0

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise ValueError(
                f"Endpoint.base_url is {self.base_url!r}; it must begin with http:// or https://, and usually ends in /v1"
            )
        if self.attempts < 1 or self.timeout <= 0 or self.pause < 0:
            raise ValueError(
                f"Endpoint has {self.attempts} attempts of {self.timeout} seconds with pauses of {self.pause}; one attempt "
                "at least, a time above 0, a pause of 0 or above"
            )

    def __call__(self, question: str | Pictured) -> str:
        for attempt in range(1, self.attempts + 1):
            try:
                return self._attempt(question)
            except _Passing as error:
                if attempt == self.attempts:
                    raise JudgeError(error.reason, f"{error} ({attempt} attempts)") from error
                wait = self.pause * 2 ** (attempt - 1) if error.wait is None else error.wait
                time.sleep(min(wait, LONGEST_PAUSE))
        raise AssertionError("the last attempt returns or raises")

    def _attempt(self, question: str | Pictured) -> str:
        messages = [{"role": "system", "content": self.system}] if self.system else []
        body = {
            "model": self.model,
            "messages": [
                *messages,
                {"role": "user", "content": question if isinstance(question, str) else question.content},
            ],
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            **self.options,
        }
        address = self.base_url.rstrip("/") + "/chat/completions"
        request = urllib.request.Request(address, json.dumps(body).encode(), self._headers(), method="POST")
        try:
            with _OPENER.open(request, timeout=self.timeout) as reply:
                data = reply.read(REPLY_BYTES)
                left = reply.length or 0  # of what the header promised
        except urllib.error.HTTPError as error:
            with error:
                said = f"HTTP {error.code} {error.reason}"
                if error.code in PASSING:
                    raise _Passing("busy", f"{address}: {said}", _seconds(error.headers.get("Retry-After"))) from error
                raise JudgeError("refused", f"{address}: {said}") from error
        except TimeoutError as error:
            raise _Passing("timeout", f"{address}: nothing for {self.timeout:g} seconds") from error
        except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
            slow = isinstance(getattr(error, "reason", None), TimeoutError)
            raise _Passing("timeout" if slow else "unreachable", f"{address}: {error}") from error
        if left and len(data) < REPLY_BYTES:
            raise _Passing("unreachable", f"{address}: the reply ended {left} bytes too early")
        return _text(data, address)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self.key_variable:
            if not (key := os.environ.get(self.key_variable)):
                raise JudgeError("refused", f"the environment variable {self.key_variable} holds no key")
            headers["Authorization"] = f"Bearer {key}"
        return headers


class _Passing(JudgeError):
    """A temporary failure; ``wait`` is how long the server asked to wait."""

    def __init__(self, reason: str, detail: str, wait: float | None = None) -> None:
        super().__init__(reason, detail)
        self.wait = wait


def _seconds(header: str | None) -> float | None:
    return float(header) if header is not None and header.isascii() and header.isdigit() else None


def _text(data: bytes, address: str) -> str:
    try:
        text = json.loads(data)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise JudgeError("malformed", f"{address}: the reply is not a chat completion: {data[:80]!r}") from error
    if not isinstance(text, str):
        raise JudgeError("malformed", f"{address}: the reply has no text")
    return text
