"""The endpoint for agents in training: one per process, where requests wait for the workflow that answers them."""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from gimbal.environments.program import Said
from gimbal.policies.token import Sampling
from gimbal.records import MOST_LENGTH
from gimbal.serve import replies
from gimbal.serve.answers import AbstractAnswers
from gimbal.serve.app import application, close_idle
from gimbal.serve.asked import Asked, score_of
from gimbal.serve.sessions import REWARDED, Over

HOST = "127.0.0.1"
GRACE_SECONDS = 0.1  # for the end of a connection to be noticed, where the same request comes again


@dataclass(kw_only=True, eq=False)
class Question:
    """A request that waits for its answer. ``gone``: the client has closed the connection."""

    asked: Asked
    future: Future[list[Said]] = field(default_factory=Future)
    gone: bool = False

    def __post_init__(self) -> None:
        self.future.set_running_or_notify_cancel()  # from here on it ends by the workflow's word alone


class Box:
    """The requests of one session, and how it ends. Its program ends once; a posted reward ends only its requests."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.changed = threading.Condition()
        self.new: list[Question] = []  # not handed to the workflow yet
        self.questions: list[Question] = []  # whose answer nobody has read yet
        self.score: float | None = None  # as it was posted
        self.ended: dict[str, Any] | None = None  # what the host said of the program's end

    def enter(self, asked: Asked) -> Question:
        """A request repeated after a lost connection is the same request."""
        with self.changed:
            if (question := next((one for one in self._alike(asked) if one.gone), None)) is not None:
                question.gone = False
                return question
            if self.score is not None:
                raise Over(self.name, REWARDED)
            self.questions.append(question := Question(asked=asked))
            self.new.append(question)
            self.changed.notify_all()
            return question

    def doubled(self, asked: Asked) -> bool:
        """Whether the same is being asked just now: by somebody else, or by a connection that was lost and is not known to be."""
        with self.changed:
            return any(not question.gone for question in self._alike(asked))

    def _alike(self, asked: Asked) -> list[Question]:
        return [question for question in self.questions if question.asked == asked]

    def reward(self, score: float) -> None:
        with self.changed:
            if self.score is not None:
                raise Over(self.name, REWARDED)
            self.score = score
            self.changed.notify_all()

    def end(self, said: dict[str, Any]) -> None:
        with self.changed:
            self.ended = self.ended or said
            self.changed.notify_all()

    def read(self, question: Question) -> None:
        with self.changed:
            self.questions.remove(question)

    def next(self, seconds: float, finishing: float) -> list[Question] | None:
        """The requests since the last call, or nothing once the program has ended; None after so many seconds without either, or
        ``finishing`` of them after the reward."""
        began = time.monotonic()
        with self.changed:
            while not self.new and self.ended is None:
                left = began + (seconds if self.score is None else finishing) - time.monotonic()
                if left <= 0:
                    return None
                self.changed.wait(left)
            new, self.new = self.new, []
            return new


class Board(AbstractAnswers):
    """Answers nothing itself. ``fixed``: agents ask for temperature 0, which cannot be trained on."""

    name, sampling, fixed = "policy", Sampling(max_length=MOST_LENGTH), True

    def __init__(self) -> None:
        self.boxes: dict[str, Box] = {}
        self._lock = threading.Lock()
        self._socket = socket.create_server((HOST, 0), backlog=1024)
        config = uvicorn.Config(
            application(self, HOST), http="h11", ws="none", lifespan="off", log_level="error", access_log=False
        )
        self._server = uvicorn.Server(config)
        # A daemon: it serves as long as the process lives.
        threading.Thread(target=lambda: asyncio.run(self._listen()), name="gimbal-board", daemon=True).start()

    async def _listen(self) -> None:
        watch = asyncio.create_task(close_idle(self._server))
        await self._server.serve(sockets=[self._socket])
        watch.cancel()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._socket.getsockname()[1]}"

    def open(self) -> Box:
        """A new session, with an unguessable name."""
        box = Box(secrets.token_hex(8))
        with self._lock:
            self.boxes[box.name] = box
        return box

    def close(self, box: Box) -> None:
        with self._lock:
            self.boxes.pop(box.name, None)
        for question in box.questions:
            if not question.future.done():
                question.future.set_exception(ConnectionAbortedError("the episode is over"))

    def _box(self, session: str) -> Box:
        with self._lock:
            box = self.boxes.get(session)
        if box is None:
            raise ValueError("there is no such session here; use the base_url that was passed to the agent")
        return box

    async def reply(self, asked: Asked) -> dict[str, Any]:
        answers = await self._answers(asked)
        return replies.reply(asked, answers, self.name)

    async def stream(self, asked: Asked) -> AsyncGenerator[bytes, None]:
        """Each answer in one piece: it is whole before the workflow has it."""
        answers, frame = await self._answers(asked), replies.frame(asked, self.name, chunk=True)
        for number, said in enumerate(answers):
            piece = replies.last_piece(replies.choice(asked, number, said), said.text, first=True)
            yield replies.event(frame | {"choices": [piece]})
        if asked.usage:
            yield replies.event(frame | {"choices": [], "usage": replies.usage(asked, answers)})
        yield replies.event("[DONE]")

    async def _answers(self, asked: Asked) -> Sequence[Said]:
        box = self._box(asked.session)
        if box.doubled(asked):
            await asyncio.sleep(GRACE_SECONDS)
        question = box.enter(asked)
        try:
            answers = await asyncio.wrap_future(question.future)
        except asyncio.CancelledError:
            question.gone = True
            raise
        except Exception:
            box.read(question)
            raise
        box.read(question)
        return answers

    def reward(self, session: str, score: object) -> None:
        self._box(session).reward(score_of(score))

    def health(self) -> dict[str, Any]:
        with self._lock:
            return {"sessions": len(self.boxes), "error": ""}


_BOARDS: list[Board] = []
_OPENING = threading.Lock()  # several episodes begin at once


def board() -> Board:
    """That of this process."""
    with _OPENING:
        if not _BOARDS:
            _BOARDS.append(Board())
        return _BOARDS[0]
