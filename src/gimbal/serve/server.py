"""An OpenAI-compatible endpoint over any token engine. It records its answers.

    POST /v1/completions, /v1/chat/completions      as OpenAI's, plus token ids, log-probabilities and versions
    POST /SESSION/v1/reward                         {"score": 1.0}: the session's reward, which ends it
    GET  /v1/models, /health

A path before /v1 names a session: an agent whose base_url is http://HOST:PORT/episode-7/v1 is recorded as episode-7. One thread
drives the engine (``driver``), one answers HTTP (``app``); requests that arrive together are batched.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

import uvicorn
from torch import Tensor

from gimbal.engines.base import AbstractEngine
from gimbal.policies.token import Sampling, TokenPolicy
from gimbal.records import Drop, Episode, Task
from gimbal.serve.answers import Answers
from gimbal.serve.app import application, close_idle
from gimbal.serve.driver import Driver
from gimbal.serve.exchanges import Session
from gimbal.serve.sessions import Sessions


class CompletionServer:
    """A server over a live engine, which only the server may step from then on. ``with`` closes it.

    ``sampling`` is the default for requests; ``fixed`` enforces it even if a request asks for another temperature or truncation (agents
    tend to ask for temperature 0, which cannot be trained on). ``record`` is the file to which each exchange is appended; its existing
    content is read. Of the answers given, ``keep`` stay in memory until they are taken, those of open sessions and the newest first;
    None keeps all.
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
        sessions = Sessions(record, keep)  # before anything is open: it may refuse the record
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=1024)
        self.driver = Driver(engine)
        self.answers = Answers(self.driver, policy, sampling, name=name, seed=seed, fixed=fixed, sessions=sessions)
        config = uvicorn.Config(
            application(self.answers, host),
            http="h11",  # the others differ in what they let through
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,  # requests are on record
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._listen()), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def __enter__(self) -> CompletionServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening and cancel answers in progress."""
        self._server.should_exit = True
        self.driver.close()
        self._thread.join()
        self._socket.close()

    async def _listen(self) -> None:
        watch = asyncio.create_task(close_idle(self._server))
        await self._server.serve(sockets=[self._socket])
        watch.cancel()

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        """Load new weights, between two engine steps: answers in progress continue with them."""
        self.driver.load(version, state)

    def reward(self, session: str, score: object) -> None:
        """Set the session's reward, if its agent does not post it: a number within the bounds of /v1/reward."""
        self.answers.sessions.reward(session, score)

    def take(self, session: str = "") -> Session:
        """Take the exchanges of a session, which ends it and removes it from memory."""
        return self.answers.sessions.take(session)

    def episode(self, session: str, task: Task, sample: int) -> Episode | Drop:
        """The session as attempt number ``sample`` at a task, for a group of them; this ends the session. /health counts drops."""
        return self.answers.episode(session, task, sample)
