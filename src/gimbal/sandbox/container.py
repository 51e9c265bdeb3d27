"""The rung of programs that need an image of their own: a container of docker or podman."""

from __future__ import annotations

import base64
import contextlib
import json
import secrets
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any

from gimbal.sandbox._confine import DISK_BYTES
from gimbal.sandbox.base import unavailable
from gimbal.sandbox.live import Unavailable
from gimbal.sandbox.processes import GRACE, SERVES_GB, TREE, AbstractProcesses
from gimbal.sandbox.worker import PREFIX, WorkerError

START_SECONDS = 60.0
HOME = "/work"
CODE = "import sys; sys.path[:] = [*filter(None, sys.path), '/gimbal']; from gimbal.sandbox._container import main; main({})"
CLOSED = """
    --interactive --rm --pull never --log-driver none --network none --read-only --user 0:0 --entrypoint python3
    --cap-drop ALL --security-opt no-new-privileges --ulimit nofile=256:256 --ulimit nproc=4096:4096 --ulimit core=0:0
"""
# What the first process needs to start programs as another user, to end them, and to add up their memory. Programs have none of it.
RIGHTS = ("SETUID", "SETGID", "KILL", "SYS_PTRACE")


@dataclass(frozen=True, kw_only=True)
class Container(AbstractProcesses):
    """Python programs and commands in a container of ``image``, for programs that need more than this machine has installed.

    ``engine`` is docker, podman, or either with its own options ("podman --runtime=runc"); ``options`` are those of its ``run``, such
    as ``("--runtime=runsc",)`` for gVisor; one that grants something takes back what is promised here. The image must be there (nothing
    is downloaded) and have python3, 3.9 or newer; programs that are commands find what the image has. The container has no network, and
    no files of this machine but gimbal's own sandbox; the image is read-only; programs write in their working directory, which is in
    memory. They run as nobody, without rights, and with the limits of the other rungs. One container serves a sandbox from its start to
    its end, so that a call takes milliseconds. It ends with the run, however the run ends.
    """

    image: str
    engine: str = "docker"
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            words = shlex.split(self.engine)
        except ValueError:
            words = []
        if not self.image or self.image.startswith("-") or not words:
            raise ValueError(
                f"Container has image {self.image!r} and engine {self.engine!r}: the name of an image, and a program such as docker"
            )
        if {"-d", "--detach"} & {*self.options}:
            raise ValueError(
                "Container has the option --detach, with which the container would outlive the run: leave it out"
            )

    def missing(self) -> str:
        return unavailable(self._found)

    def _found(self) -> None:
        engine = shlex.split(self.engine)
        if shutil.which(engine[0]) is None:
            raise Unavailable(f"Container needs the program {engine[0]}, which is not installed; or choose Landlock()")
        words = [*engine, "image", "inspect", self.image]
        try:
            there = subprocess.run(words, capture_output=True, text=True, check=False, timeout=START_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise Unavailable(
                f"Container asked {engine[0]} for {self.image!r}, and heard nothing in {START_SECONDS:g} s"
            ) from error
        if there.returncode:
            raise Unavailable(
                f"Container finds no image {self.image!r}: {_last(there.stderr)}. `{self.engine} pull {self.image}` would get one"
            )

    def server(self) -> Boxed:
        return Boxed(self)


@dataclass
class Boxed:
    """A running container, called as a ``Worker`` is."""

    spec: Container
    timeout: float = field(init=False)
    needs: list[str] = field(default_factory=list)
    lacking: dict[str, str] = field(default_factory=dict)  # of the promises of a worker; here the engine keeps them

    def __post_init__(self) -> None:
        spec, self.late = self.spec, False
        self.timeout = spec.timeout + GRACE
        self.engine, self.name = shlex.split(spec.engine), f"gimbal-{secrets.token_hex(8)}"
        memory = int(spec.memory_gb * 2**30)
        # Podman leaves files where it was started. Of a killed run, workers of the next remove them.
        self.place = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
        self.errors = Path(self.place.name, "errors").open("w+b")  # noqa: SIM115 - as long as the container
        code = CODE.format(f"{memory}, {spec.processes}, {spec.output}")
        self.process = subprocess.Popen(
            [*self.engine, "run", "--name", self.name, *self._options(memory), spec.image, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            cwd=self.place.name,
            start_new_session=True,  # Ctrl-C is the run's
        )
        try:
            self._heard(START_SECONDS)
        except WorkerError as error:
            raise Unavailable(f"{self.engine[0]} did not start {spec.image!r} as a sandbox: {error}") from error

    def _options(self, memory: int) -> list[str]:
        spec = self.spec
        # Of all processes and files together, should what looks at the processes be too slow.
        limit = str(memory + int(SERVES_GB * 2**30) + 2 * DISK_BYTES)
        options = shlex.split(CLOSED)
        options += [word for right in RIGHTS for word in ("--cap-add", right)]
        options += ["--memory", limit, "--memory-swap", limit, "--pids-limit", str(spec.processes + 16)]
        # Podman would make the last two without a limit.
        sizes = {
            HOME: f"exec,size={DISK_BYTES}",
            "/tmp": f"size={DISK_BYTES}",
            "/run": "size=65536",
            "/var/tmp": "size=65536",
        }
        for path, size in sizes.items():
            options += ["--tmpfs", f"{path}:rw,{size}"]
        for path in ("sandbox", "__init__.py"):
            options += ["--volume", f"{TREE / path}:/gimbal/gimbal/{path}:ro"]
        options += ["--env", f"TMPDIR={HOME}", "--env", "PYTHONDONTWRITEBYTECODE=1", "--workdir", HOME]
        return [*options, *spec.options]

    def __call__(self, *arguments: Any) -> Any:
        sent = [base64.b64encode(one).decode() if isinstance(one, bytes) else one for one in arguments]
        return self._heard(self.timeout, json.dumps(sent).encode() + b"\n")

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        """The end of its input ends it, and with it all that it started; what does not listen is removed."""
        if self.errors.closed:
            return
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._remove()
        self.process.stdout.close()
        self.errors.close()
        self.place.cleanup()

    def _remove(self) -> None:
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([*self.engine, "rm", "--force", self.name], capture_output=True, check=False, timeout=GRACE)
        self.process.wait()

    def _expire(self) -> None:
        self.late = True
        self._remove()

    def _heard(self, seconds: float, sent: bytes = b"") -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        timer = Timer(seconds, self._expire)
        timer.start()
        try:
            with contextlib.suppress(BrokenPipeError):  # it has ended, which is heard
                self.process.stdin.write(sent)
                self.process.stdin.flush()
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        if line.endswith(b"\n") and not self.late:
            return json.loads(line)
        self.process.wait()
        self.errors.seek(0)
        said = _last(self.errors.read().decode(errors="replace"))
        self.close()
        raise WorkerError(f"it did not answer within {seconds:g} seconds" if self.late else f"it ended ({said})")


def _last(text: str) -> str:
    """Its last line, or the last that tells of an error."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    last = (["it said nothing"] + lines + [line for line in lines if "rror" in line])[-1]
    return "".join(letter if letter.isprintable() else "?" for letter in last[:300])
