"""The answers of an endpoint: prompts are encoded, completed by the engine, recorded, and stored by session."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Any

from gimbal.engines.base import Request
from gimbal.environments.program import Said, begins, message
from gimbal.policies.prompts import for_template, rendered
from gimbal.policies.token import Sampling, TokenPolicy
from gimbal.records import Drop, Episode, Rollout, Task
from gimbal.serve import replies
from gimbal.serve.asked import Asked
from gimbal.serve.driver import Awaited, Busy, Driver
from gimbal.serve.exchanges import Exchange, Session
from gimbal.serve.sessions import Over, Sessions

Prompt = tuple[str, list[int]]  # as text, and as tokens


class AbstractAnswers(ABC):
    """The interface between HTTP and the answers. ``sampling`` is the default for requests; ``fixed`` enforces its temperature."""

    name: str
    sampling: Sampling
    fixed: bool

    @abstractmethod
    async def reply(self, asked: Asked) -> dict[str, Any]:
        """The body of the response. Cancelled: the client has gone."""

    @abstractmethod
    def stream(self, asked: Asked) -> AsyncGenerator[bytes, None]:
        """The same as server-sent events."""

    @abstractmethod
    def reward(self, session: str, score: object) -> None:
        """What a session earned, which ends it."""

    @abstractmethod
    def health(self) -> dict[str, Any]:
        """For GET /health; ``error`` says why nothing can be answered any more."""


class Answers(AbstractAnswers):
    """See ``CompletionServer`` for the arguments."""

    def __init__(
        self,
        driver: Driver,
        policy: TokenPolicy,
        sampling: Sampling,
        *,
        name: str,
        seed: int,
        fixed: bool,
        sessions: Sessions,
    ) -> None:
        self.driver, self.policy, self.sampling, self.name = driver, policy, sampling, name
        self.seed, self.fixed, self.sessions = seed, fixed, sessions
        self.count = 0  # of requests to the engine
        self.rewritten = 0  # contexts that go on from no answer of their session, though it has some: each begins a row
        self._longest_token = max(map(len, policy.tokenizer.get_vocab()))
        self._lock = threading.Lock()  # of the counts
        self._encoding = threading.Lock()  # a tokenizer is no place for two threads

    def episode(self, session: str, task: Task, sample: int) -> Episode | Drop:
        if (keep := self.sessions.keep) is not None:
            raise ValueError(
                f"a server that keeps only the newest {keep} answers may lose some of an episode's: set keep=None"
            )
        made = self.sessions.take(session).episode(task, sample)
        if isinstance(made, Drop):
            self.driver.drop(made.reason)
        return made

    def health(self) -> dict[str, Any]:
        driver = self.driver
        return {
            "version": driver.engine.version,
            "under_way": driver.under_way,
            "answered": driver.answered,
            "drops": dict(driver.drops),
            "rewritten": self.rewritten,
            "error": str(driver.failure or ""),
        }

    def reward(self, session: str, score: object) -> None:
        self.sessions.reward(session, score)

    async def reply(self, asked: Asked) -> dict[str, Any]:
        """The body of the response."""
        exchanges = await self.answer(asked)
        answers = await asyncio.to_thread(lambda: [replies.of_exchange(each, self.policy) for each in exchanges])
        return replies.reply(asked, answers, self.name)

    async def answer(self, asked: Asked) -> list[Exchange]:
        """All answers, which are on record when it returns. Cancelling it cancels them."""
        prompts = await asyncio.to_thread(self.encoded, asked)
        tickets: list[Awaited] = []
        try:
            for number in range(len(prompts) * asked.n):
                self.driver.submit(ticket := self._ticket(asked, prompts, number))
                tickets.append(ticket)
            rollouts = [await asyncio.wrap_future(ticket.future) for ticket in tickets]
        except BaseException as error:
            self._give_up(tickets, error)
            raise
        drawn_from = [prompt for prompt in prompts for _ in range(asked.n)]
        return await asyncio.to_thread(self._remembered, asked, drawn_from, rollouts)

    async def stream(self, asked: Asked) -> AsyncGenerator[bytes, None]:
        """The same as server-sent events, as it is drawn. With tools each answer is one piece: a call is one only once it is whole."""
        prompts = await asyncio.to_thread(self.encoded, asked)
        loop, news = asyncio.get_running_loop(), asyncio.Queue[tuple[int, Rollout | None]]()
        frame, tickets = replies.frame(asked, self.name, chunk=True), dict[int, Awaited]()  # that have not ended

        def tell(number: int, rollout: Rollout | None) -> None:
            loop.call_soon_threadsafe(news.put_nowait, (number, rollout))

        try:
            for number in range(len(prompts) * asked.n):
                progress = None if asked.tools else partial(tell, number)
                self.driver.submit(ticket := self._ticket(asked, prompts, number, progress))
                tickets[number] = ticket
                ticket.future.add_done_callback(lambda _, number=number: tell(number, None))
            said, answers = [""] * len(tickets), list[Said]()
            while tickets:
                number, rollout = await news.get()
                first = not said[number]
                if rollout is not None:
                    text = replies.settled(rollout)
                    if len(text) > len(said[number]) and text.startswith(said[number]):
                        made = replies.piece(asked, number, text[len(said[number]) :], first=first)
                        said[number] = text
                        yield replies.event(frame | {"choices": [made]})
                    continue
                drawn = [tickets.pop(number).future.result()]
                (exchange,) = await asyncio.to_thread(self._remembered, asked, [prompts[number // asked.n]], drawn)
                answers.append(replies.of_exchange(exchange, self.policy))
                whole = replies.choice(asked, number, answers[-1])
                rest = answers[-1].text[len(said[number]) :]
                yield replies.event(frame | {"choices": [replies.last_piece(whole, rest, first=first)]})
            if asked.usage:
                yield replies.event(frame | {"choices": [], "usage": replies.usage(asked, answers)})
            yield replies.event("[DONE]")
        except BaseException as error:
            self._give_up(list(tickets.values()), error)
            raise

    def encoded(self, asked: Asked) -> list[Prompt]:
        """Text and tokens of every prompt; raises a ValueError for what does not fit."""
        room = self.policy.model.config.max_position_embeddings
        most = room * self._longest_token
        self.sessions.going_on(asked.session)
        if self.driver.engine.version < 0:
            raise ValueError(
                "the engine has no weights yet: server.load(learner.version, policy.state_dict()) comes first"
            )
        if asked.chat:
            text = self._chat(asked, most)  # what the template refuses is refused, whatever goes before
            prompts = [self._talking(asked) or self._continuing(asked.session, text, special=False)]
        else:
            prompts = [self._encoded(asked.session, item, most) for item in asked.prompts]
        for _, ids in prompts:
            if len(ids) + asked.sampling.max_length > room:
                raise ValueError(
                    f"a prompt of {len(ids)} tokens and {asked.sampling.max_length} more pass the model's context of {room} "
                    "tokens; shorten the prompt, or ask for a lower max_tokens"
                )
        return prompts

    def _ticket(
        self,
        asked: Asked,
        prompts: Sequence[Prompt],
        number: int,
        progress: Callable[[Rollout], None] | None = None,
    ) -> Awaited:
        (text, ids), sample = prompts[number // asked.n], number % asked.n
        with self._lock:
            count, self.count = self.count, self.count + 1
        # A seed of the client's own gives the same answer again; without one every answer has a stream of its own.
        seeded = asked.seed is not None
        columns: dict[str, Any] = {"prompt_ids": ids}
        columns |= {"messages": asked.messages} if asked.chat else {}
        columns |= {"tools": asked.tools} if asked.tools else {}
        task = Task(id=asked.session if seeded else f"{asked.session}/{count}", prompt=text, columns=columns)
        seed = asked.seed if asked.seed is not None else self.seed
        request = Request(group=count, task=task, sample=sample, sampling=asked.sampling, seed=seed)
        return Awaited(request=request, progress=progress)

    def _give_up(self, tickets: Sequence[Awaited], error: BaseException) -> None:
        for ticket in tickets:
            self.driver.cancel(ticket, _reason(error))

    def _remembered(self, asked: Asked, prompts: Sequence[Prompt], rollouts: Sequence[Rollout]) -> list[Exchange]:
        exchanges = []
        for (text, _), rollout in zip(prompts, rollouts, strict=True):
            said = self.policy.tokenizer.decode(replies.drawn(rollout))
            exchanges.append(Exchange(session=asked.session, rollout=rollout, text=text + said))
        try:
            self.sessions.remember(asked.session, exchanges)
        except (Over, OSError) as error:  # it ended while this was drawn, or the disk is full: the client is told
            self.driver.drop(_reason(error), len(exchanges))
            raise
        return exchanges

    def _chat(self, asked: Asked, most: int) -> str:
        tokenizer, messages = self.policy.tokenizer, [for_template(message) for message in asked.messages or ()]
        if tokenizer.chat_template is None:
            raise ValueError("the model has no chat template; use /v1/completions")
        text = rendered(tokenizer, messages, asked.tools, "the request")
        _fits(text, most)
        return text

    def _talking(self, asked: Asked) -> Prompt | None:
        """A chat that goes on from an answer of this session: by its messages, for a template may write a call of a tool otherwise than
        it was drawn. None where it goes on from none."""
        known: Exchange | None = None
        rest: list[dict[str, Any]] = []
        for exchange in self.sessions.said(asked.session):
            columns = exchange.rollout.task.columns
            if not columns.get("messages") or columns.get("tools") != asked.tools:
                continue
            said = [*columns["messages"], message(replies.visible(exchange.rollout), asked.tools)]
            if len(said) < len(asked.messages or ()) and begins(asked.messages or (), said) and len(said) > len(rest):
                known, rest = exchange, said
        if known is None:
            return None
        with self._encoding:
            ids = self.policy.encode_told(known.rollout, (asked.messages or [])[len(rest) :])
        return known.text + self.policy.tokenizer.decode(ids), known.ids + ids

    def _continuing(self, name: str, text: str, *, special: bool) -> Prompt:
        """What continues from an answer of this session begins with the very tokens that were drawn. ``special``: a first prompt is
        encoded with the tokenizer's own tokens around it."""
        session = self.sessions.in_memory(name)
        before = session.continued(text)
        with self._lock:
            self.rewritten += bool(session.exchanges) and before is None and not (special and _ended(session, text))
        with self._encoding:
            if before is None:
                return text, self.policy.tokenizer.encode(text, add_special_tokens=special)
            rest = text[len(before.text) :]
            return text, before.ids + (self.policy.tokenizer.encode(rest, add_special_tokens=False) if rest else [])

    def _encoded(self, session: str, prompt: str | list[int], most: int) -> Prompt:
        tokenizer = self.policy.tokenizer
        if isinstance(prompt, str):
            _fits(prompt, most)
            return self._continuing(session, prompt, special=True)
        if len(prompt) > most or not all(0 <= token < len(tokenizer) for token in prompt):
            raise ValueError(f"prompt holds what is none of the model's token ids, which are 0 to {len(tokenizer) - 1}")
        return tokenizer.decode(prompt), prompt


def _ended(session: Session, text: str) -> bool:
    """Whether a text goes on after an answer that ended by itself or before a stop string: what ended it is not in the text, so it
    begins a row, and yet nothing was rewritten."""
    return any(text.startswith(one.rollout.task.prompt + replies.visible(one.rollout)) for one in session.exchanges)


def _reason(error: BaseException) -> str:
    """Why answers were drawn, or begun, and not recorded."""
    match error:
        case Over():
            return error.reason
        case asyncio.CancelledError() | GeneratorExit():
            return "client gone"
        case Busy():
            return "busy"
        case OSError():
            return "not recorded"
        case _:
            return "engine error"


def _fits(text: str, most: int) -> None:
    """Before it is encoded, which takes seconds for megabytes that could not fit anyway."""
    if len(text) > most:
        raise ValueError(f"a prompt of {len(text)} characters cannot fit into the model's context; shorten it")
