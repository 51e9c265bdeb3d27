"""Tools of an MCP server, by the protocol's official SDK: a program that is started and spoken to over its standard input."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from gimbal.config.classes import nearest
from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, Failure, Moment
from gimbal.environments.calls import CLOSE, FORM, OPEN, ToolCall, answer, calls
from gimbal.records import Fault, Task, is_chat

STARTING = 30.0  # seconds for a server to say what it offers
REFUSED = -32602  # JSON-RPC: the parameters are wrong, which is the caller's own


@dataclass(frozen=True, kw_only=True)
class Mcp(AbstractEnvironmentSpec):
    """The tools of an MCP server: Dialogue(tool=Mcp(command='python', arguments=('server.py',))), on tasks of your own.

    The server says what it offers; its schemas go to the chat template, and a call is written and answered as with ``Functions``. A
    call that cannot be, and an answer that the server marks as an error, are told to the policy. A server that dies, or answers with
    what is no text, has broken: its episode ends as a ``tool_error``.

    Each episode has a server of its own, begun anew and ended with it, so what it keeps is the episode's; a resumed run makes the calls
    again and wants the same answers. With ``shared`` all episodes of a process speak to one, which must keep nothing between calls.
    Servers behind an address are not covered, nor are resources, prompts and sampling.
    """

    command: str
    arguments: tuple[str, ...] = ()
    shared: bool = False

    @property
    def triggers(self) -> tuple[str, ...]:
        return (CLOSE,)

    @property
    def fault(self) -> Fault:
        return "tool"

    @cached_property
    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        return _one(self.command, self.arguments).schemas

    def open(self) -> AbstractEnvironment:
        return ServerProcess(self)


class ServerProcess(AbstractEnvironment):
    """One live episode's server."""

    def __init__(self, spec: Mcp) -> None:
        self.spec, self._task = spec, Task(id="")
        self._server: Server | None = None

    def reset(self, task: Task, seed: int) -> None:
        self.close()
        self._task = task
        shared = self.spec.shared
        self._server = (_one if shared else Server)(self.spec.command, self.spec.arguments)

    def step(self, action: str) -> Moment:
        assert self._server is not None, "reset comes before step"
        if not action.rstrip().endswith(CLOSE):
            return Moment()
        call = next(iter(calls(action[max(0, action.rfind(OPEN)) :])), ToolCall(wrong=FORM))
        said = f"error: {call.wrong}" if call.wrong else self._server.call(call)
        if is_chat(self._task.columns.get("messages")):
            return Moment(observation=[answer(call.name, said)])
        return Moment(observation=f"\n<tool_response>\n{said}\n</tool_response>\n")

    def close(self) -> None:
        if self._server is not None and not self.spec.shared:
            self._server.end()
        self._server = None


class Server:
    """A program under way. The SDK wants it begun and ended by one task of one event loop, and is asked from any thread."""

    def __init__(self, command: str, arguments: Sequence[str]) -> None:
        self.named = " ".join([command, *arguments])
        self._over = asyncio.Event()
        self._session: Any = None
        self.schemas: tuple[Mapping[str, Any], ...] = ()
        ready = threading.Event()
        begun = asyncio.run_coroutine_threadsafe(self._live(command, list(arguments), ready), _thread())
        begun.add_done_callback(lambda _: ready.set())
        if not ready.wait(STARTING):
            begun.cancel()
            raise Failure(f"the MCP server {self.named} does not answer within {STARTING:g} seconds", "tool")
        if self._session is None:
            raise Failure(f"the MCP server {self.named} does not begin: {_innermost(begun.exception())}", "tool")

    def call(self, call: ToolCall) -> str:
        names = [one["function"]["name"] for one in self.schemas]
        if call.name not in names:
            return f"error: there is no tool {call.name}{nearest(call.name, names)}; there are {', '.join(names)}"
        return asyncio.run_coroutine_threadsafe(self._ask(call), _thread()).result()

    def end(self) -> None:
        _thread().call_soon_threadsafe(self._over.set)

    async def _ask(self, call: ToolCall) -> str:
        from mcp import McpError

        try:
            said = (await self._session.call_tool(call.name, dict(call.arguments))).model_dump(by_alias=True)
        except McpError as error:
            if error.error.code == REFUSED:
                return f"error: {error}"
            raise Failure(f"the MCP server {self.named} does not answer: {error}", "tool") from error
        if others := {part["type"] for part in said["content"]} - {"text"}:
            raise Failure(
                f"the MCP server {self.named} answers with {', '.join(sorted(others))}; only text is covered", "tool"
            )
        text = "".join(part["text"] for part in said["content"])
        return f"error: {text}" if said["isError"] else text

    async def _live(self, command: str, arguments: list[str], ready: threading.Event) -> None:
        try:
            from mcp import ClientSession, StdioServerParameters
            from mcp.client.stdio import stdio_client
        except ImportError as error:
            raise ValueError(
                "MCP servers need the protocol's SDK, which is not installed: pip install -e '.[mcp]' in the clone"
            ) from error
        async with (
            # Its own default is what sys.stderr was when it was imported, which in a notebook is no file.
            stdio_client(
                StdioServerParameters(command=command, args=arguments), errlog=sys.__stderr__ or sys.stderr
            ) as (reads, writes),
            ClientSession(reads, writes) as session,
        ):
            await session.initialize()
            tools = (await session.list_tools()).model_dump(by_alias=True)["tools"]
            self.schemas = tuple(
                {
                    "type": "function",
                    "function": {
                        "name": one["name"],
                        "description": one["description"] or "",
                        "parameters": one["inputSchema"],
                    },
                }
                for one in tools
            )
            self._session = session
            ready.set()
            await self._over.wait()


def _innermost(error: BaseException | None) -> str:
    """What is at the bottom of groups of exceptions, in which anyio puts all."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return "it ended by itself" if error is None else f"{type(error).__name__}: {error}"


@lru_cache
def _one(command: str, arguments: Sequence[str]) -> Server:
    """The server of this process that is asked what it offers, and that ``shared`` ones are."""
    return Server(command, arguments)


@lru_cache
def _thread() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="mcp", daemon=True).start()
    return loop
