import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gimbal.rewards.isolation import RewardError, Worker, WorkerError


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _gone(pid: int) -> bool:
    end = time.monotonic() + 3
    while _alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not _alive(pid)


@pytest.fixture
def worker():
    made = []

    def make(function, **options):
        options = {"timeout": 5.0, "memory_gb": 4.0} | options
        made.append(Worker("w", lambda: (function, []), **options))
        return made[-1]

    yield make
    for w in made:
        w.close()


def test_calls_go_to_one_process(worker):
    w = worker(lambda x: [x, __import__("os").getpid()])
    (first, pid), (second, same) = w("a"), w("b")
    assert (first, second) == ("a", "b") and pid == same != os.getpid()


def test_the_worker_imports_neither_torch_nor_the_parents_main(worker):
    w = worker(lambda: sorted(set(__import__("sys").modules) & {"torch", "pytest", "transformers"}))
    assert w() == []


def test_start_returns_while_the_target_is_still_being_made():
    w = Worker("w", lambda: time.sleep(30), timeout=1.0, memory_gb=0.0)
    start = time.perf_counter()
    w.start()
    w.close()
    assert time.perf_counter() - start < 5


def test_a_group_of_eight_short_texts_takes_under_a_millisecond(worker):
    w = worker(lambda texts: [1.0] * len(texts))
    w(["x"])

    def once() -> float:
        start = time.perf_counter()
        w(["<answer>12</answer>"] * 8)
        return time.perf_counter() - start

    assert sorted(once() for _ in range(100))[10] < 1e-3


def test_a_deadline_ends_the_whole_process_group(worker):
    def spawn():
        child = __import__("subprocess").Popen(["sleep", "60"])
        Path("pid").write_text(str(child.pid))
        child.wait()

    def read(home):
        return Path(home).read_text()

    w = worker(spawn, timeout=0.5)
    assert w.needs == []
    home, pid = Path(w._home.name), w._process.pid
    with pytest.raises(WorkerError, match=r"within 0\.5 seconds"):
        timer_seen = []
        watch = __import__("threading").Timer(0.3, lambda: timer_seen.append(int((home / "pid").read_text())))
        watch.start()
        w()
    assert timer_seen and _gone(timer_seen[0]) and not _alive(pid)
    assert not home.exists()


def test_a_worker_that_died_while_idle_is_replaced(worker):
    w = worker(lambda: __import__("os").getpid())
    first = w()
    os.kill(first, signal.SIGKILL)
    assert _gone(first)
    assert w() != first


def test_death_by_a_signal_is_named(worker):
    w = worker(lambda: __import__("os").kill(__import__("os").getpid(), 11))
    with pytest.raises(WorkerError, match="signal SIGSEGV"):
        w()


def test_answers_are_data_never_objects(worker):
    w = worker(lambda: object())
    with pytest.raises(WorkerError):
        w()


def test_no_descriptors_are_inherited_but_the_pipe(worker, tmp_path):
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        w = worker(lambda: [__import__("os").readlink(f"/proc/self/fd/{n}") for n in range(3, 40)
                            if __import__("os").path.exists(f"/proc/self/fd/{n}")])  # fmt: skip
        assert str(tmp_path / "open") not in w()


def test_a_target_that_cannot_be_sent_is_refused():
    lock = __import__("threading").Lock()
    with pytest.raises(RewardError, match="cannot be sent"):
        Worker("w", lambda: (lock, []), timeout=1.0, memory_gb=0.0).start()


@pytest.mark.parametrize("options", [{"timeout": 0.0, "memory_gb": 1.0}, {"timeout": 1.0, "memory_gb": -1.0}])
def test_limits_are_checked(options):
    with pytest.raises(ValueError, match="of w is"):
        Worker("w", lambda: (None, []), **options)


def test_without_network_where_the_kernel_permits(worker):
    def reach():
        import socket

        names = [name for _, name in socket.if_nameindex()]
        return names

    names = worker(reach, network=False)()
    if names != ["lo"]:
        pytest.skip("this kernel does not let a process give up its network")


SCRIPT = """
import time
from gimbal.rewards.function import Function
def stuck(completions):
    import os
    open("{file}", "w").write(str(os.getpid()))
    while True:
        pass
import sys; sys.path.insert(0, "{here}")
import made
Function(function=stuck)(made.group(made.TASK, made.rollout(text="x")))
"""


@pytest.mark.slow
def test_the_worker_of_a_script_without_main_guard_dies_with_it_even_when_stuck(tmp_path):
    file = tmp_path / "pid"
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(file=file, here=Path(__file__).parents[1]))
    parent = subprocess.Popen([sys.executable, str(script)], env=os.environ | {"TMPDIR": str(tmp_path)})
    end = time.monotonic() + 30
    while not (file.exists() and file.read_text()) and time.monotonic() < end:
        time.sleep(0.02)
    pid = int(file.read_text())
    assert _alive(pid)
    parent.kill()
    parent.wait()
    assert _gone(pid)
