"""Environments behind an address that speak OpenEnv's protocol: reset and step as JSON over a WebSocket."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, Failure, Moment
from gimbal.records import Task

FULL = "CAPACITY_REACHED"  # the server's word for: no session is free
AGAIN = 0.2  # seconds between two tries for a session
LARGEST = 100 * 2**20  # bytes of one answer, as the package's own client has it


@dataclass(frozen=True, kw_only=True)
class OpenEnv(AbstractEnvironmentSpec):
    """An environment behind an address that speaks OpenEnv's protocol: Dialogue(tool=OpenEnv(address='ws://localhost:8000')), on tasks
    of your own.

    A turn's text goes to the field ``action`` of the server's action; with "" the turn is a JSON object, the action itself. What comes
    back is shown as it is in the field ``shown`` of the observation; with "" all of it, as JSON. The reward is the server's, and done
    ends the episode: the protocol does not tell an end from a cut. ``reset`` is given the task's seed, and the task's column ``reset``.

    Each episode has a session of its own, and waits for one up to ``patience`` seconds where all are taken, and as long for each
    answer. A server that cannot be reached, breaks off or answers with an error has failed (``environment_error``), but for an action
    that it does not take: that is the policy's, and is told to it. With ``repeats=False`` it need not answer the same to the same
    actions: a resumed run gives up the episodes that it cannot bring back, where it would end otherwise.
    """

    pays: ClassVar[bool] = True
    address: str
    action: str = "message"
    shown: str = ""
    patience: float = 30.0
    repeats: bool = True

    def __post_init__(self) -> None:
        if not self.address.startswith(("ws://", "wss://", "http://", "https://")):
            raise ValueError(f"OpenEnv has address={self.address!r}; it must be one, as ws://localhost:8000")

    def open(self) -> AbstractEnvironment:
        return RemoteSession(self)


class RemoteSession(AbstractEnvironment):
    """One live session. All its state is the server's."""

    def __init__(self, spec: OpenEnv) -> None:
        self.spec = spec
        self._socket: Any = None

    def reset(self, task: Task, seed: int) -> str:
        asked = {"type": "reset", "data": {"seed": task.seed, **task.columns.get("reset", {})}}
        late = time.monotonic() + self.spec.patience
        while True:
            self._socket = self._socket or self._connected()
            told = self._asked(asked)
            if told["type"] != "error":
                return self._moment(told).observation
            self.close()
            if told["data"].get("code") != FULL:
                raise self._wrong(told)
            if time.monotonic() >= late:
                raise Failure(
                    f"{self.spec.address} has had no session free for {self.spec.patience:g} seconds", late=True
                )
            time.sleep(AGAIN)

    def step(self, action: str) -> Moment:
        try:
            data = {self.spec.action: action} if self.spec.action else json.loads(action)
        except ValueError as error:
            return Moment(observation=f"That is no JSON object: {error}", calls=1, errors=1)
        told = self._asked({"type": "step", "data": data})
        if told["type"] != "error":
            return self._moment(told)
        if told["data"].get("code") == "VALIDATION_ERROR":
            why = "; ".join(str(one.get("msg")) for one in told["data"].get("errors") or ())
            return Moment(observation=f"That is no action: {why}", calls=1, errors=1)
        raise self._wrong(told)

    def close(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()

    def _connected(self) -> Any:
        try:
            from websockets.exceptions import WebSocketException
            from websockets.sync.client import connect
        except ImportError as error:
            raise ValueError(
                f"OpenEnv's protocol needs websockets, which is not installed ({error}): pip install -e '.[openenv]' in the clone"
            ) from error
        address = self.spec.address.replace("http", "ws", 1).rstrip("/")
        try:
            return connect(f"{address}/ws", max_size=LARGEST, open_timeout=self.spec.patience)
        except (OSError, WebSocketException) as error:
            raise Failure(f"{self.spec.address} cannot be reached: {error}") from error

    def _asked(self, message: dict[str, Any]) -> dict[str, Any]:
        from websockets.exceptions import ConnectionClosed, WebSocketException

        try:
            # A session that is refused is closed at once; the reason is the last thing that it says.
            with suppress(ConnectionClosed):
                self._socket.send(json.dumps(message))
            told = json.loads(self._socket.recv(timeout=self.spec.patience))
        except TimeoutError as error:
            self.close()
            why = f"{self.spec.address} has not answered within {self.spec.patience:g} seconds"
            raise Failure(why, late=True) from error
        except (OSError, WebSocketException, ValueError, RecursionError) as error:
            self.close()
            raise Failure(f"{self.spec.address} broke off: {error}") from error
        if not _spoken(told):
            raise Failure(f"{self.spec.address} answers with {str(told)[:80]!r}, which is not OpenEnv's protocol")
        return told

    def _moment(self, told: dict[str, Any]) -> Moment:
        data = told["data"]
        seen, earned = data.get("observation") or {}, data.get("reward")
        if self.spec.shown and self.spec.shown not in seen:
            raise ValueError(
                f"OpenEnv has shown={self.spec.shown!r}, and {self.spec.address} observes {', '.join(sorted(seen)) or 'nothing'}"
            )
        shown = str(seen[self.spec.shown]) if self.spec.shown else json.dumps(seen, sort_keys=True)
        return Moment(
            observation=shown,
            reward=0.0 if earned is None else earned,
            terminated=bool(data.get("done")),
            calls=1,
        )

    def _wrong(self, told: dict[str, Any]) -> Failure:
        return Failure(f"{self.spec.address} says {told['data'].get('code')}: {told['data'].get('message')}")


def _spoken(told: Any) -> bool:
    """Whether it is an answer of the protocol, in all that is read of it."""
    data = told.get("data") if isinstance(told, dict) else None
    if not isinstance(data, dict):
        return False
    if told.get("type") == "error":
        errors = data.get("errors") or []
        return isinstance(errors, list) and all(isinstance(one, dict) for one in errors)
    seen, done, earned = data.get("observation") or {}, data.get("done"), data.get("reward")
    number = earned is None or (isinstance(earned, int | float) and not isinstance(earned, bool))
    return told.get("type") == "observation" and isinstance(seen, dict) and done in (None, True, False) and number
