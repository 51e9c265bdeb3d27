"""vLLM behind HTTP: its requests, and a server that gimbal starts itself.

The routes are vLLM's own: token ids in and out (/inference/v1/generate), and those for reinforcement learning (/pause, /resume,
/abort_requests, /collective_rpc, /update_weight_version, /weight_info, /weight_checker), which a server has in development mode.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import torch
from safetensors.torch import save_file
from torch import Tensor

from gimbal import durable

LIFE = uuid.uuid4().hex[:12]  # of this process: a server says whose weights it holds
START_SECONDS = 600.0  # for a server to be up: it imports, compiles, captures graphs
LOOK = 0.2  # seconds between two looks whether it is up
SHORT = 10.0  # seconds for a server to say that it is up
COMMAND = "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out --logprobs-mode processed_logprobs --dtype {}"
RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")


class ServerGone(Exception):
    """No answer, or an incomplete one: the server may be down or going down."""


class ServerRefusal(ValueError):
    """The server understood the request and refused it."""


@dataclass(frozen=True, kw_only=True)
class Client:
    """One server; one connection per request, since a connection handles one at a time."""

    url: str
    patience: float  # seconds for the answer to a request that draws

    def post(self, path: str, body: Any = None) -> Any:
        return self._ask("POST", path, None if body is None else json.dumps(body), self.patience)

    def get(self, path: str, *, seconds: float | None = None) -> Any:
        return self._ask("GET", path, None, seconds or self.patience)

    def up(self) -> bool:
        try:
            self.get("/health", seconds=SHORT)
        except (ServerGone, ServerRefusal):
            return False
        return True

    def comes_back(self) -> bool:
        """Whether it answers within the patience."""
        end = time.monotonic() + self.patience
        while not self.up():
            if time.monotonic() > end:
                return False
            time.sleep(LOOK)
        return True

    def _ask(self, verb: str, path: str, body: str | None, seconds: float) -> Any:
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=seconds)
        with contextlib.closing(connection):
            try:
                connection.request(verb, parts.path.rstrip("/") + path, body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                status, text = answer.status, answer.read()
            except (OSError, http.client.HTTPException) as error:  # refused, reset, timed out, cut off
                raise ServerGone(f"{verb} {path}: {error or type(error).__name__}") from None
        said = text.decode("utf-8", "replace")
        if status >= 500:
            raise ServerGone(f"{verb} {path}: status {status}, {_words(said)}")
        if status >= 400:
            raise ServerRefusal(f"the server at {self.url} answers {verb} {path} with {status}: {_words(said)}")
        try:
            return json.loads(said) if said else None
        except ValueError:
            raise ServerGone(f"{verb} {path}: the answer is not JSON: {said[:80]!r}") from None


def _words(said: str) -> str:
    """A server's error, without its wrapping."""
    try:
        found = json.loads(said)
    except ValueError:
        return said[:300] or "no reason given"
    inner = found.get("error", found) if isinstance(found, Mapping) else found
    return str(inner.get("message", inner) if isinstance(inner, Mapping) else inner)[:300]


def greet(client: Client, precision: str) -> int:
    """The maximum number of tokens per request to this server. ValueError if it lacks what is needed."""
    command = COMMAND.format(precision)
    if not client.up():
        print(
            f"gimbal: waiting for the vLLM server at {client.url}, at most {client.patience:.0f} s (engine.patience)",
            file=sys.stderr,
            flush=True,
        )
    if not client.comes_back():
        raise ValueError(f"there is no vLLM server at {client.url}; start it with {command}, or drop engine.url")
    try:
        client.get("/weight_info")
        config = client.get("/server_info?config_format=json")["vllm_config"]["model_config"]
    except (ServerRefusal, ServerGone) as error:
        raise ValueError(
            f"the server at {client.url} cannot be used for training ({error}); start it with {command}"
        ) from None
    dtype, mode = str(config["dtype"]).removeprefix("torch."), config["logprobs_mode"]
    if dtype != precision:
        raise ValueError(
            f"the server at {client.url} samples in {dtype} and engine.precision is {precision}: set engine.precision={dtype}"
        )
    if mode != "processed_logprobs":
        raise ValueError(
            f"the server at {client.url} gives {mode}, which do not match the sampled distribution; start it with {command}"
        )
    return int(config["max_model_len"])


def write_weights(weights: Mapping[str, Tensor], names: Mapping[str, Sequence[str]], directory: Path) -> None:
    """One file in the layout of transformers, under every name a weight has: a server may hold a tied output layer separately."""
    directory.mkdir(parents=True, exist_ok=True)
    held = {
        name.removeprefix("model."): tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for first, tensor in weights.items()
        for name in names[first]
    }
    partial = directory / ".partial"
    with durable.named(partial):
        save_file(held, partial, metadata={"format": "pt"})
    partial.rename(directory / "model.safetensors")


class OwnServer:
    """A server as a child of this process, ending with it. Engines of one kind share it; the last ``release`` stops it."""

    _up: ClassVar[dict[str, OwnServer]] = {}

    def __init__(self, home: tempfile.TemporaryDirectory[str], options: Sequence[str], key: str, gpus: str) -> None:
        self._gpus = gpus
        self._home, self._options, self._key, self._leases = home, list(options), key, 1
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    @classmethod
    def lease(cls, key: str, gpus: str, make: Any) -> OwnServer:
        """The server of this kind, started if there is none; ``make`` gives its home, with the model in it, and its options."""
        if (known := cls._up.get(key)) is not None:
            known._leases += 1
            return known
        home, options = make()
        server = cls(home, options, key, gpus)
        server.start()
        cls._up[key] = server
        return server

    def release(self) -> None:
        self._leases -= 1
        if self._leases == 0:
            self._up.pop(self._key, None)
            self.stop()
            self._home.cleanup()

    @property
    def log(self) -> Path:
        return Path(self._home.name) / "server.log"

    def start(self) -> None:
        """Returns once it answers. ValueError with its last words if it does not."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        # Not `vllm serve`: that command looks for a package named vllm, and the build for CPUs has another name.
        command = [sys.executable, "-m", "vllm.entrypoints.launchers.api_server.entry", "--model", self._home.name]
        command += ["--host", "127.0.0.1", "--port", str(port), *self._options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("_keeper.py")), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=_environment(self._gpus),
                start_new_session=True,  # Ctrl-C is for the run, which then ends it
            )
        client, end = Client(url=self.url, patience=SHORT), time.monotonic() + START_SECONDS
        while not client.up():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise ValueError(f"vLLM's server did not start: {self._last_words()}")
            time.sleep(LOOK)

    def stop(self) -> None:
        """It and what it has started; the keeper sees the pipe close."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        errors = [line for line in lines if "Error" in line and "Traceback" not in line]
        return (errors or lines or ["it said nothing"])[-1].strip()[-300:]


def _environment(gpus: str) -> dict[str, str]:
    """A server's environment: ours, without torchrun's variables."""
    inherited = {n: value for n, value in os.environ.items() if n not in RANKS and not n.startswith("TORCHELASTIC_")}
    ours = {
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_USE_V2_MODEL_RUNNER": "0",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",  # an engine in this process turns it off
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
    }
    quiet = {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    return quiet | inherited | ours | ({"CUDA_VISIBLE_DEVICES": gpus} if gpus else {})
