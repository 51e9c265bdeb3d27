"""Monty: attacks in its own language, and a state that is bytes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gimbal.sandbox.live import OverLimit
from gimbal.sandbox.monty import Monty

pydantic_monty = pytest.importorskip("pydantic_monty")

# Each prints "through" if it gets through. An ending is the exception that it dies of, or the limit that it is ended at.
ATTACKS = {
    "reads a file": ("open({file!r}).read()", "FileNotFoundError"),
    "reads upwards": ("open('../..' + {file!r}).read()", "FileNotFoundError"),
    "reads by pathlib": ("from pathlib import Path\nPath({file!r}).read_text()", "FileNotFoundError"),
    "writes a file": ("open({file!r}, 'w').write('x')", "FileNotFoundError"),
    "removes a file": ("import os\nos.remove({file!r})", "Error"),
    "lists a directory": ("import os\nif os.listdir('/') != ['home']:\n    print('through')", ""),
    "makes a link": ("import os\nos.symlink({file!r}, 'link')\nprint(open('link').read())", "Error"),
    "reads the environment": ("import os\nprint('through' if os.getenv('PATH') or dict(os.environ) else '')", ""),
    "reads /proc": ("open('/proc/self/environ').read()", "FileNotFoundError"),
    "opens memory": ("open('/proc/self/mem', 'rb').read(1)", "FileNotFoundError"),
    "signals": ("import os\nos.kill({pid}, 0)", "AttributeError"),
    "signals by name": ("import signal", "ModuleNotFoundError"),
    "traces": ("import ctypes\nctypes.CDLL(None).ptrace(16, {pid}, 0, 0)", "ModuleNotFoundError"),
    "forks": ("import os\nos.fork()", "AttributeError"),
    "starts a program": ("import subprocess\nsubprocess.run(['true'])", "ModuleNotFoundError"),
    "starts a shell": ("import os\nos.system('true')", "AttributeError"),
    "starts a thread": ("import threading", "ModuleNotFoundError"),
    "reaches the network": ("import socket\nsocket.create_connection(('127.0.0.1', 1))", "ModuleNotFoundError"),
    "fetches": ("import urllib.request\nurllib.request.urlopen('http://127.0.0.1:1')", "ModuleNotFoundError"),
    "climbs the classes": ("().__class__.__bases__[0].__subclasses__()", "AttributeError"),
    "climbs the frames": ("def f():\n    pass\nf.__globals__", "AttributeError"),
    "imports by name": ("__import__('os').system('true')", "Error"),
    "evaluates": ("eval('open({file!r}).read()')", "Error"),
    "executes": ("exec('import socket')", "Error"),
    "formats": ("'{{0.__class__.__init__.__globals__}}'.format(1)", "Error"),
    "changes the clock": ("import time\ntime.clock_settime(0, 0.0)", "AttributeError"),
    "reads the clock": ("import time\nprint('through' if time.time() > 1e9 else '')", ""),
    "loops": ("while True:\n    pass", "deadline"),
    "loops past exceptions": ("while True:\n try:\n  while True:\n   pass\n except BaseException:\n  pass", "deadline"),
    "takes memory": ("x = 'x' * 10**9\nprint('through')", "memory"),
    "takes memory in parts": ("x = []\nwhile True:\n    x.append('x' * 100_000 + str(len(x)))", "memory"),
    "counts without end": ("10 ** 10 ** 8", "memory"),
    "recurses": ("def f(n):\n    return f(n + 1)\nf(0)", "RecursionError"),
    "nests": ("x = []\nfor _ in range(100_000):\n    x = [x]\nprint(len(repr(x)) < 0)", ""),
    "floods": ("while True:\n    print('x' * 10_000)", "output"),
    "fills the disk": ("for n in range(100):\n    open(f'f{{n}}', 'w').write('x' * 1_000_000)", "No space left"),
    "makes files without end": ("for n in range(2_000):\n    open(f'f{{n}}', 'w')", ""),
    "asks for files without end": ("while True:\n    try:\n        open('nowhere')\n    except OSError:\n        pass", ""),
    "sleeps": ("import time\ntime.sleep(1_000_000)", ""),
}  # fmt: skip


@pytest.fixture
def sandbox():
    live = Monty(timeout=0.5).start()
    yield live
    live.close()


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_contained_and_named_and_the_next_program_runs(sandbox, tmp_path, name):
    held_off(sandbox, tmp_path, name)


def held_off(sandbox, place, name):
    file = place / "file"
    file.write_text("hidden words")
    sandbox.exec("kept = 1")
    program, ending = ATTACKS[name]
    said, limit = "", ""
    try:
        outcome = sandbox.exec(program.format(file=str(file), pid=os.getpid()))
        said = outcome.output + outcome.errors
    except OverLimit as error:
        limit = error.limit
    assert "through" not in said.replace("print('through", "") and "hidden words" not in said, (name, said)
    assert ending in said + limit and file.read_text() == "hidden words", (name, said, limit)
    assert sandbox.exec("kept += 1\nprint(kept)").output == "2\n" and list(place.iterdir()) == [file], name


BY_A_USER = """
import os, sys, tempfile
from pathlib import Path
sys.path.insert(0, {here!r})
import attacks
import test_monty
attacks.become("user")
assert os.geteuid() == attacks.ORDINARY
with tempfile.TemporaryDirectory(dir="/tmp") as place:
    for name in test_monty.ATTACKS:
        sandbox = test_monty.Monty(timeout=0.5).start()
        test_monty.held_off(sandbox, Path(place), name)
        sandbox.close()
print(len(test_monty.ATTACKS), "held off")
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="whoever runs these tests is an ordinary user")
def test_every_attack_of_an_ordinary_user_is_too():
    script = BY_A_USER.format(here=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == f"{len(ATTACKS)} held off\n", done.stderr[-2000:]


def test_there_are_attacks_enough():
    assert len(ATTACKS) >= 25


PROGRAMS = ["import random\nx = [random.random()]", "x += [random.random()]", "print(x)"]
RESUMED = """
import sys
from pydantic_monty import Monty
with Monty() as pool, pool.checkout() as session:
    session.load_session(sys.stdin.buffer.read())
    for program in {programs!r}:
        session.feed_run(program)
"""


@pytest.mark.slow
def test_its_state_is_bytes_resumed_to_the_bit_in_another_process():
    def straight(*programs):
        sandbox = Monty(seed=7).start()
        return sandbox, "".join(sandbox.exec(program).output for program in programs)

    _, whole = straight(*PROGRAMS, *PROGRAMS[1:])
    half, before = straight(*PROGRAMS)
    script = RESUMED.format(programs=PROGRAMS[1:])
    done = subprocess.run([sys.executable, "-c", script], input=half.state.session, capture_output=True, check=True)
    assert before + done.stdout.decode() == whole and len(whole) > 40
    branches = [half.fork() for _ in range(2)]
    said = {"".join(branch.exec(program).output for program in PROGRAMS[1:]) for branch in branches}
    assert said == {done.stdout.decode()}


def test_the_seed_is_its_own_and_files_are_of_the_state(sandbox):
    said = {Monty(seed=seed).start().exec("import random\nprint(random.random())").output for seed in (0, 0, 1)}
    assert len(said) == 2
    sandbox.exec("open('f', 'w').write('1')")
    other = Monty().start()
    other.resume(sandbox.state)
    assert other.read("f") == b"1" and other.exec("print(open('f').read())").output == "1\n"


def test_a_program_that_is_ended_has_changed_nothing(sandbox):
    sandbox.exec("x = 1\nopen('f', 'w').write('1')")
    before = sandbox.state
    with pytest.raises(OverLimit):
        sandbox.exec("x = 2\nopen('f', 'w').write('2')\nwhile True:\n    pass")
    assert sandbox.state == before and sandbox.exec("print(x, open('f').read())").output == "1 1\n"


def test_it_is_no_shell(sandbox):
    with pytest.raises(ValueError, match=r"the command \['ls'\] needs Landlock"):
        sandbox.exec(["ls"])
    with pytest.raises(ValueError, match="no standard input"):
        sandbox.exec("1", stdin="x")
