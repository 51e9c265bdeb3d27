"""HTTP: who may ask, how much and how slowly, and what becomes of errors. Everything else is the server's."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gimbal.serve import replies
from gimbal.serve.answers import AbstractAnswers
from gimbal.serve.asked import Asked, rewarded, understood
from gimbal.serve.driver import Busy

BODY_BYTES = 1 << 22
# Of a body that is too large, read and thrown away while they come, so that its client can read why.
THROWN_BYTES = 1 << 26
SILENCE = 0.5  # seconds after which nothing more of it is coming
READING_BYTES = 1 << 28  # of all bodies that are being read together
BODY_SECONDS = 30  # for a client to send its body, or to begin a request on a new connection
SESSION_LENGTH = 200


class Refused(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class OwnHosts:
    """Answers only what is addressed to this machine by number or by a name of its own, at a path that is text.

    A page of another site may make a browser ask here under a name of that site's (DNS rebinding); nobody can rebind a number.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self.app, self.names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._ours(dict(scope["headers"]).get(b"host", b"").decode("latin-1")):
            sentence = "this server answers to numeric addresses, localhost and its own name only"
            await refusal(403, sentence)(scope, receive, send)
        elif scope["type"] == "http" and not (scope["path"].isprintable() and "\ufffd" not in scope["path"]):
            # Bytes that are no text would all become the same character, and so several sessions one.
            await refusal(400, "a path, and so a session's name, is printable text in UTF-8")(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _ours(self, host: str) -> bool:
        name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
        if name.lower() in self.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


class Handlers:
    """What is behind each path."""

    def __init__(self, answers: AbstractAnswers) -> None:
        self.answers = answers
        self.reading = 0  # bytes of bodies under way

    async def health(self, request: Request) -> Response:
        found = self.answers.health()
        return JSONResponse(found, 500 if found["error"] else 200)

    async def models(self, request: Request) -> Response:
        data = [{"id": self.answers.name, "object": "model", "owned_by": "gimbal"}]
        return JSONResponse({"object": "list", "data": data})

    async def chat(self, request: Request) -> Response:
        return await self._guarded(self._answered(request, chat=True))

    async def completions(self, request: Request) -> Response:
        return await self._guarded(self._answered(request, chat=False))

    async def reward(self, request: Request) -> Response:
        return await self._guarded(self._rewarded(request))

    async def _guarded(self, answer: Awaitable[Response]) -> Response:
        """Errors of one request are that request's answer."""
        try:
            return await answer
        except ClientDisconnect:
            return Response(status_code=499)  # nobody is there to read it
        except TimeoutError:
            return refusal(408, f"the body did not come within {BODY_SECONDS} s")
        except Exception as error:
            return refusal(*status_of(error))

    async def _asked(self, request: Request) -> tuple[str, bytes]:
        """The session and the body."""
        session = request.path_params.get("session", "").strip("/")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            # A page of another site may send a form anywhere without being asked; JSON it may not.
            raise Refused(415, "the body must be JSON: send it with Content-Type: application/json")
        if len(session) > SESSION_LENGTH:
            raise Refused(400, f"a session's name has at most {SESSION_LENGTH} characters")
        return session, await self._body(request)

    async def _rewarded(self, request: Request) -> Response:
        session, data = await self._asked(request)
        score = rewarded(data)
        await asyncio.to_thread(self.answers.reward, session, score)
        return JSONResponse({"session": session, "score": score})

    async def _answered(self, request: Request, *, chat: bool) -> Response:
        answers = self.answers
        session, data = await self._asked(request)
        asked = await asyncio.to_thread(understood, data, session, chat=chat, own=answers.sampling, fixed=answers.fixed)
        if asked.stream:
            return await self._streamed(request, asked)
        return JSONResponse(await _while_there(request, answers.reply(asked)))

    async def _streamed(self, request: Request, asked: Asked) -> Response:
        """What fails before the first piece has a status of its own; later it is the stream's last event."""
        events = self.answers.stream(asked)
        first = await _while_there(request, anext(events))

        async def all_of() -> AsyncIterator[bytes]:
            try:
                yield first
                async for event in events:
                    yield event
            except Exception as error:
                yield replies.event(wrong(*status_of(error)))
            finally:
                await events.aclose()  # gives up what is still being drawn

        return StreamingResponse(all_of(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    async def _body(self, request: Request) -> bytes:
        declared = request.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and (len(declared) > 18 or int(declared) > BODY_BYTES):
            raise await _too_large(request)
        found = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for piece in request.stream():
                    found += piece
                    self.reading += len(piece)
                    if len(found) > BODY_BYTES:
                        raise await _too_large(request)
                    if self.reading > READING_BYTES:
                        raise Busy("too many requests are being read; try again in a moment")
        finally:
            self.reading -= len(found)
        return bytes(found)


async def _too_large(request: Request) -> Refused:
    """What to raise. A client that is still sending when its connection is closed sees a reset, and not the answer."""
    thrown = 0
    with contextlib.suppress(TimeoutError):
        while thrown < THROWN_BYTES:
            message = await asyncio.wait_for(request.receive(), SILENCE)
            thrown += len(message.get("body", b""))
            if not message.get("more_body", False):
                break
    return Refused(413, f"a body has at most {BODY_BYTES} bytes")


async def _while_there(request: Request, work: Awaitable[Any]) -> Any:
    """Its result; cancelled where the client closes its connection first."""
    working, gone = asyncio.ensure_future(work), asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    """Returns when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def status_of(error: Exception) -> tuple[int, str]:
    match error:
        case Refused():
            return error.status, str(error)
        case Busy():
            return 429, str(error)
        case RecursionError():
            return 400, "the body is nested too deeply"
        case ValueError():
            return 400, str(error)
        case _:
            return 500, str(error) or type(error).__name__


def wrong(status: int, sentence: str) -> dict[str, Any]:
    kind = {429: "rate_limit_error"}.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": sentence, "type": kind, "param": None, "code": None}}


def refusal(status: int, sentence: str) -> JSONResponse:
    headers: Mapping[str, str] = {"Retry-After": "1"} if status == 429 else {}
    return JSONResponse(wrong(status, sentence), status, headers=dict(headers))


async def _nowhere(request: Request, error: Exception) -> Response:
    return refusal(
        404,
        f"there is no {request.method} {request.url.path}; POST to /v1/chat/completions or /v1/completions, or a session's score to "
        "/EPISODE/v1/reward (EPISODE is a name of yours, which may stand before any of these); GET /v1/models or /health",
    )


def application(answers: AbstractAnswers, host: str) -> Starlette:
    handlers = Handlers(answers)
    routes = [Route("/health", handlers.health)]
    for session in ("", "/{session:path}"):
        routes += [
            Route(f"{session}/v1/models", handlers.models),
            Route(f"{session}/v1/chat/completions", handlers.chat, methods=["POST"]),
            Route(f"{session}/v1/completions", handlers.completions, methods=["POST"]),
            Route(f"{session}/v1/reward", handlers.reward, methods=["POST"]),
        ]
    names = frozenset({"localhost", host.lower(), socket.gethostname().lower()})
    return Starlette(
        routes=routes,
        middleware=[Middleware(OwnHosts, names=names)],
        exception_handlers={404: _nowhere, 405: _nowhere},
    )


async def close_idle(server: uvicorn.Server) -> None:
    """Close connections that have not begun a request in time: each holds a file descriptor, of which there are few."""
    since: dict[Any, float] = {}
    while True:
        await asyncio.sleep(BODY_SECONDS / 10)
        silent = [one for one in server.server_state.connections if vars(one).get("cycle") is None]
        since = {one: since.get(one, time.monotonic()) for one in silent}
        for one in [one for one, start in since.items() if time.monotonic() - start > BODY_SECONDS]:
            vars(one)["transport"].abort()
