"""The interface of sandboxes, in every rung that is here, and what is refused where nothing holds."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import image
import pytest

from gimbal import config
from gimbal.config import Text
from gimbal.sandbox import trial
from gimbal.sandbox import worker as sandboxed
from gimbal.sandbox.base import AbstractSandboxSpec
from gimbal.sandbox.container import Container
from gimbal.sandbox.live import AbstractSandbox, Lost, Outcome, OverLimit, Unavailable, Untrusted
from gimbal.sandbox.monty import Monty
from gimbal.sandbox.processes import Bubblewrap, Landlock
from gimbal.workflows.base import AbstractWorkflow


def here(spec):
    if isinstance(spec, Monty):
        pytest.importorskip("pydantic_monty")
    if isinstance(spec, Bubblewrap) and shutil.which(spec.program) is None:
        pytest.skip("bwrap is not installed")
    if isinstance(spec, Container):
        if not image.engine():
            pytest.skip("neither docker nor podman runs a container here")
        return replace(spec, engine=image.engine())
    return spec


@pytest.fixture
def start():
    live = []

    def make(spec):
        live.append(here(spec).start())
        return live[-1]

    yield make
    for sandbox in live:
        sandbox.close()


RUNGS = [Landlock(), Bubblewrap(), Monty(), Container(image=image.NAME)]


@pytest.mark.slow
@pytest.mark.parametrize("spec", RUNGS, ids=lambda spec: type(spec).__name__)
def test_one_interface(start, spec):
    sandbox = start(spec)
    assert sandbox.exec("print(6 * 7)") == Outcome(code=0, output="42\n")
    failed = sandbox.exec("print('before')\nx = 1 / 0")
    assert (failed.code, failed.output) == (1, "before\n") and "ZeroDivisionError: division by zero" in failed.errors
    assert "gimbal" not in failed.errors  # the program's own lines only
    sandbox.write("data/in.txt", "é".encode())
    assert sandbox.exec("open('out.txt', 'w').write(open('data/in.txt').read() * 2)").code == 0
    assert sandbox.read("out.txt").decode() == "éé"
    other = sandbox.fork()
    try:
        other.write("out.txt", b"other")
        assert other.exec("print(open('data/in.txt').read(), open('out.txt').read())").output == "é other\n"
    finally:
        other.close()
    assert sandbox.read("out.txt").decode() == "éé"
    with pytest.raises(OverLimit, match=r"did not return within 0\.2 seconds") as late:
        sandbox.exec("while True:\n    pass", seconds=0.2)
    assert late.value.limit == "deadline" and pickle.loads(pickle.dumps(late.value)).limit == "deadline"
    assert sandbox.read("out.txt").decode() == "éé"
    with pytest.raises(FileNotFoundError if isinstance(spec, Monty) else OSError, match="nowhere"):
        sandbox.read("nowhere")
    for path in ("/etc/passwd", "../x", "", "a/../../b", "a\ud800"):
        with pytest.raises(ValueError, match="beneath its working directory"):
            sandbox.read(path)
    with pytest.raises(ValueError, match="above 0"):
        sandbox.exec("1", seconds=0.0)
    sandbox.close()
    sandbox.close()
    with pytest.raises(Lost, match="was closed"):
        sandbox.exec("1")


def test_programs_and_commands_begin_alike(start):
    sandbox = start(Landlock())
    assert sandbox.exec(["sh", "-c", "cat; echo $HOME | wc -l; exit 3"], stdin="in\n") == Outcome(
        code=3, output="in\n1\n"
    )
    told = sandbox.exec(
        "import sys\nprint(sys.stdin.read(), __name__, sys.argv, len(sys.path) > 2)\nsys.exit('bye')", stdin="x"
    )
    assert told == Outcome(code=1, output="x __main__ ['program.py'] True\n", errors="bye\n")
    assert sandbox.exec("import json, sys\nprint('gimbal' in sys.modules, json.dumps(1))").output == "False 1\n"
    assert sandbox.exec("exit(4)").code == 4 and "No such file" in sandbox.exec(["nowhere"]).errors
    said = {sandbox.exec("print({'a', 'b', 'c', 'd'}, hash('x'))").output for _ in range(2)}
    said |= {start(Landlock()).exec("print({'a', 'b', 'c', 'd'}, hash('x'))").output}
    assert len(said) == 1  # the same again, in another sandbox too
    with pytest.raises(ValueError, match="is empty"):
        sandbox.exec([])


def test_what_is_large_is_refused_by_name_and_costs_nothing_else(start):
    sandbox = start(Landlock())
    sandbox.exec("open('big', 'wb').write(b'x' * (9 << 20))")
    for action in (lambda: sandbox.read("big"), sandbox.fork):
        with pytest.raises(OverLimit, match="at most 8,388,608") as caught:
            action()
        assert caught.value.limit == "size"
    assert sandbox.exec(["ls"]).output == "big\n"


def test_a_sandbox_that_was_ended_does_not_come_back_empty(start):
    """The worker of a reward starts afresh; here files would be gone without a word."""
    sandbox = start(Landlock())
    sandbox.write("kept", b"x")
    supervisor = sandbox.worker._process.pid
    os.kill(supervisor, signal.SIGKILL)
    sandbox.worker._process.wait()
    for _ in range(2):
        with pytest.raises(Lost, match="its files are gone: open another"):
            sandbox.read("kept")


@dataclass(frozen=True, kw_only=True)
class Bare(AbstractSandboxSpec):
    """No sandbox at all: a subprocess in a directory. All ten attacks get through."""

    place: str
    memory_gb: float = 0.01
    processes: int = 1

    def start(self):
        return Loose(self.place)


class Loose(AbstractSandbox):
    def __init__(self, place):
        self.place = Path(place)

    def exec(self, program, *, stdin="", seconds=None):
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=self.place, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return Outcome(code=done.returncode, output=done.stdout.decode())

    def read(self, path):
        return (self.place / path).read_bytes()

    def write(self, path, content):
        (self.place / path).write_bytes(content)

    def fork(self):
        return Loose(self.place)

    def close(self):
        for path in Path("/proc").glob("[0-9]*/cwd"):
            try:
                if path.resolve() == self.place:
                    os.kill(int(path.parent.name), signal.SIGKILL)
            except OSError:
                continue


@pytest.mark.slow
def test_the_ten_attacks_are_attacks(tmp_path):
    held = trial.held(Bare(place=str(tmp_path)))
    assert len(held) == 10 and not any(held.values())
    with pytest.raises(
        Untrusted, match=r"Bare does not hold on this machine: reading a file, .* forking without end got through"
    ):
        Bare(place=str(tmp_path)).open()


@dataclass(frozen=True, kw_only=True)
class Late(AbstractSandboxSpec):
    """None of its programs ends in time."""

    def start(self):
        return Slow("/nowhere")


class Slow(Loose):
    def exec(self, program, *, stdin="", seconds=None):
        raise OverLimit.of("deadline", seconds)


def test_an_attack_that_is_not_finished_has_shown_nothing():
    with pytest.raises(Untrusted, match=r"Late could not be tried .* did not finish an attack on itself within 20 s"):
        Late().open()


def test_one_thread_attacks_while_the_others_wait():
    """Side by side, one removed the variable that another's attack looks for: that crashed, or took for held what is not."""
    made, live, errors, begin = [], [], [], threading.Barrier(8)

    @dataclass(frozen=True, kw_only=True)
    class Counted(AbstractSandboxSpec):
        def start(self):
            made.append(self)
            return here(Monty()).start()

    def first():
        begin.wait()
        try:
            live.append(Counted().open())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=first) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(live) == 8
    assert len(made) == 9, "one for the attacks, and one for each thread"
    for sandbox in live:
        sandbox.close()


@pytest.mark.slow
@pytest.mark.parametrize("spec", RUNGS, ids=lambda spec: type(spec).__name__)
def test_a_rung_that_holds_opens(spec):
    spec = here(spec)
    if isinstance(spec, Landlock) and not all(trial.held(spec).values()):
        pytest.skip("this kernel has too little of it, and the rung refuses")
    spec.open().close()
    assert all(trial.held(spec).values()) and len(trial.held(spec)) == 10


@pytest.mark.slow
def test_where_nothing_holds_untrusted_code_is_refused(monkeypatch):
    """A kernel that has neither namespaces nor Landlock nor filters."""
    monkeypatch.setattr(sandboxed, "WITHOUT", ("namespaces", "landlock", "calls", "user"))
    sandboxed._warn.cache_clear()
    with (
        pytest.warns(RuntimeWarning, match="less isolated"),
        pytest.raises(Untrusted, match=r"reading a file, .*Untrusted code is not run"),
    ):
        Landlock(timeout=4.9).open()


def test_what_is_not_here_says_so_and_nothing_takes_its_place(monkeypatch):
    with pytest.raises(Unavailable, match="nowhere-bwrap, which is not installed: apt install bubblewrap"):
        Bubblewrap(program="nowhere-bwrap").start()
    assert "needs the program nowhere-docker" in Container(image="debian", engine="nowhere-docker").missing()
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    with pytest.raises(Unavailable, match="needs the package pydantic-monty"):
        Monty().start()


def test_a_container_is_read_as_it_is_typed():
    typed = "Dialogue(tool=Terminal(sandbox=Container(image='python:3.12',engine='podman --runtime=runc',options=('--gpus=all',))))"
    made = config.read(Text(typed), AbstractWorkflow, "workflow").tool.sandbox
    assert made == Container(image="python:3.12", engine="podman --runtime=runc", options=("--gpus=all",))


def test_an_image_that_is_not_there_or_has_no_python_is_said():
    spec = here(Container(image="nowhere:1"))
    assert "finds no image 'nowhere:1'" in spec.missing() and f"{spec.engine} pull nowhere:1" in spec.missing()
    with pytest.raises(Unavailable, match=r"did not start .* as a sandbox: it ended \("):
        replace(spec, image=image.NAME, options=("--entrypoint", "nowhere")).start()
    for wrong in ({"image": "--privileged"}, {"image": "x", "engine": "podman '"}):
        with pytest.raises(ValueError, match="the name of an image"):
            Container(**wrong)
    with pytest.raises(ValueError, match="outlive the run"):
        Container(image="x", options=("--detach",))


@pytest.mark.slow
def test_what_a_program_leaves_costs_a_container_nothing(start):
    """Places that an engine makes without a limit, and files that cannot be forked."""
    spec = here(Container(image=image.NAME))
    sandbox = start(spec)
    for place in ("/run", "/var/tmp", "/gimbal", "/usr"):
        assert "Error" in sandbox.exec(f"open('{place}/x', 'w')").errors, place
    sandbox.exec("import os\nfor n in range(6000): open(str(n), 'w').close()")
    with pytest.raises(OverLimit, match="files"):
        sandbox.fork()
    assert sandbox.exec("import shutil, os\nfor n in range(6000): os.remove(str(n))").code == 0
    sandbox.exec("import os\nfor _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')", seconds=10.0)
    with pytest.raises(OverLimit, match="too deep"):
        sandbox.fork()
    assert sandbox.exec("print(1)").output == "1\n"


@pytest.mark.slow
def test_a_container_that_does_not_hear_is_lost_in_time(start):
    spec = here(Container(image=image.NAME, timeout=0.5))
    sandbox = start(spec)
    sandbox.worker.timeout = 2.0
    subprocess.run([*spec.engine.split(), "pause", sandbox.worker.name], check=True, capture_output=True)
    with pytest.raises(Lost, match="did not answer within 2 seconds"):
        sandbox.write("x", b"0" * 4_000_000)


STARTS = """
import sys
from gimbal.sandbox.container import Container
live = Container(image=sys.argv[1], engine=sys.argv[2]).start()
print(live.worker.name, flush=True)
live.exec("print(1)")
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_container_ends_with_its_run_though_it_is_killed():
    spec = here(Container(image=image.NAME))
    words = [sys.executable, "-c", STARTS, spec.image, spec.engine]
    run = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    name, ready = run.stdout.readline().strip(), run.stdout.readline()
    listing = [*spec.engine.split(), "ps", "--all", "--quiet", "--filter", f"name={name}"]
    assert ready == "ready\n" and subprocess.run(listing, capture_output=True).stdout
    run.kill()
    run.communicate()
    until = time.monotonic() + 60
    while subprocess.run(listing, capture_output=True).stdout:
        assert time.monotonic() < until
        time.sleep(0.2)


@pytest.mark.parametrize("options", [{"timeout": 0.0}, {"memory_gb": -1.0}, {"processes": 1000}, {"output": 0}])
def test_limits_are_checked(options):
    name, value = next(iter(options.items()))
    with pytest.raises(ValueError, match=f"Landlock has {name}={value}; expected a number above 0"):
        Landlock(**options)
