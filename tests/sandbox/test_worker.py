import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gimbal.sandbox import _supervisor
from gimbal.sandbox import worker as sandboxed
from gimbal.sandbox._confine import Order
from gimbal.sandbox._granted import granted
from gimbal.sandbox.worker import TargetError, Worker, WorkerError


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


def _own(supervisor: int) -> int:
    """The sandboxed process, as this one sees it: the last of the supervisor's descendants."""
    last = supervisor
    while children := Path(f"/proc/{last}/task/{last}/children").read_text().split():
        last = int(children[0])
    assert last != supervisor
    return last


def test_calls_go_to_one_process(worker):
    w = worker(lambda x: [x, __import__("os").getpid(), __import__("os").getppid()])
    (first, pid, above), (second, same, _) = w("a"), w("b")
    assert (first, second) == ("a", "b") and pid == same and os.getpid() not in (pid, above)


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


def test_a_deadline_ends_all_processes_and_leaves_no_directory(worker):
    def spawn():
        __import__("subprocess").run(["sleep", "60"])

    w = worker(spawn, timeout=0.5)
    assert w.needs == []
    home, supervisor, own = w._home, w._process.pid, _own(w._process.pid)
    children = []
    watch = __import__("threading").Timer(0.3, lambda: children.append(_own(supervisor)))
    watch.start()
    with pytest.raises(WorkerError, match=r"within 0\.5 seconds"):
        w()
    assert children and children[0] != own and not any(map(_alive, (*children, own, supervisor)))
    assert not home.exists()


def test_a_worker_that_died_while_idle_is_replaced(worker):
    w = worker(lambda: 1)
    w()
    first = _own(w._process.pid)
    os.kill(first, signal.SIGKILL)
    assert _gone(first)
    assert w() == 1 and _own(w._process.pid) != first


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


def test_of_descriptors_with_high_numbers_none_is_inherited_either(worker):
    held = [os.open("/", os.O_RDONLY) for _ in range(300)]
    try:
        w = worker(
            lambda: [os.readlink(f"/proc/self/fd/{n}") for n in range(3, 700) if os.path.lexists(f"/proc/self/fd/{n}")]
        )
        assert not [
            place for place in w() if place.startswith("/") and not place.startswith(("/dev/null", str(w._home)))
        ]
        assert not [place for place in w() if place == str(w._home)]
    finally:
        for number in held:
            os.close(number)


def test_a_target_that_cannot_be_sent_is_refused():
    lock = __import__("threading").Lock()
    with pytest.raises(TargetError, match="cannot be sent"):
        Worker("w", lambda: (lock, []), timeout=1.0, memory_gb=0.0).start()


@pytest.mark.parametrize("options", [{"timeout": 0.0, "memory_gb": 1.0}, {"timeout": 1.0, "memory_gb": -1.0}])
def test_limits_are_checked(options):
    with pytest.raises(ValueError, match="of w is"):
        Worker("w", lambda: (None, []), **options)


def _connects(port: int) -> bool:
    import socket

    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_the_network_is_there_unless_it_is_not_to_be(worker):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert worker(_connects)(port) and not worker(_connects, network=False)(port)


def test_it_opens_what_is_granted_and_no_more(worker, tmp_path):
    for name in ("reads", "writes", "neither"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)

    def touch(place):
        said = ""
        for name in ("reads", "writes", "neither"):
            for mode in "ra":
                try:
                    with open(f"{place}/{name}/file", mode) as file:
                        file.read() if mode == "r" else file.write("!")
                    said += f"{name} {mode}, "
                except OSError:
                    continue
        return said

    w = worker(touch, reads=(str(tmp_path / "reads"),), writes=(str(tmp_path / "writes"),))
    assert w(str(tmp_path)) == "reads r, writes r, writes a, "
    assert (tmp_path / "writes" / "file").stat().st_uid == os.geteuid() and "user" in w.lacking
    assert (tmp_path / "writes" / "file").read_text() == "writes!"


def test_a_refused_file_is_named_with_the_way_out(worker, tmp_path):
    (tmp_path / "data").write_text("x")
    with pytest.raises(WorkerError, match=r"data'; `reads` and `writes` of a reward name what else it may open"):
        worker(lambda path: Path(path).read_text())(str(tmp_path / "data"))


def test_what_prints_without_end_is_told_in_a_sentence_and_the_next_call_prints_again(worker):
    def chatty(lines):
        import resource

        # Instead of a quarter of a gigabyte.
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        for _ in range(lines):
            print("x" * 1000, flush=True)
        return lines

    w = worker(chatty)
    with pytest.raises(
        WorkerError, match=r"^it wrote more than 256 MiB, .* all that a call prints \(test_worker.py, line"
    ):
        w(100)
    assert w(10) == 10


def test_a_grant_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(TargetError, match=r"w is granted .*nowhere, which does not exist"):
        Worker("w", lambda: (None, []), timeout=1.0, memory_gb=0.0, reads=(str(tmp_path / "nowhere"),)).start()


def test_pools_and_threads_work_inside(worker):
    def together(numbers):
        from concurrent.futures import ThreadPoolExecutor
        from multiprocessing import get_context

        with get_context("fork").Pool(2) as pool, ThreadPoolExecutor(2) as threads:
            return [*pool.map(abs, numbers), *threads.map(abs, numbers)]

    assert worker(together, timeout=20.0)([-1, 2]) == [1, 2, 1, 2]


def test_only_root_s_files_are_read_by_root_itself(worker, tmp_path):
    """A project that only root can open costs the change of user, not the run."""
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "closed" / "module.py").write_text("x")
    w = worker(lambda path: Path(path).read_text(), directory=tmp_path / "closed")
    assert w(str(tmp_path / "closed" / "module.py")) == "x"
    assert "only root can" in w.lacking["user"]


@pytest.mark.parametrize(
    "steps", [("namespaces",), ("landlock",), ("calls",), ("namespaces", "landlock", "calls", "user")]
)
def test_less_is_said_and_works_all_the_same(worker, monkeypatch, steps):
    monkeypatch.setattr(sandboxed, "WITHOUT", steps)
    sandboxed._warn.cache_clear()
    w = worker(lambda x: x + 1)
    if all(sandboxed.promises(dict.fromkeys(steps, "")).values()):
        assert w(1) == 2
    else:
        with pytest.warns(RuntimeWarning, match=f"less isolated .*{steps[0]}: left out"):
            assert w(1) == 2
    assert set(steps) <= set(w.lacking)


def test_of_a_home_directory_only_what_shows_is_granted(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("home/.ssh", "home/project/.git", "other/.x"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home" / "mine.py").touch()
    (tmp_path / "home" / ".netrc").touch()
    at = {place: {p for p in granted([place]) if p.startswith(str(tmp_path))} for place in map(str, (
        tmp_path, tmp_path / "home", tmp_path / "home" / "project", tmp_path / "home" / ".ssh"))}  # fmt: skip
    shown = {f"{tmp_path}/home/project", f"{tmp_path}/home/mine.py"}
    assert list(at.values()) == [
        shown | {f"{tmp_path}/other"},
        shown,
        {f"{tmp_path}/home/project"},
        {f"{tmp_path}/home/.ssh"},
    ]


def test_directories_of_runs_that_were_killed_are_swept(worker, tmp_path, monkeypatch):
    monkeypatch.setattr(sandboxed.tempfile, "tempdir", str(tmp_path))
    old, fresh, other = (tmp_path / name for name in ("gimbal-sandbox-old", "gimbal-sandbox-fresh", "other"))
    for path in (old, fresh, other):
        path.mkdir()
    w = worker(lambda: 1)
    assert w() == 1
    for path in (old, other, w._home):
        os.utime(path, (0, 0))
    sandboxed._sweep.cache_clear()
    sandboxed._sweep()
    assert sorted(tmp_path.iterdir()) == sorted([fresh, other, w._home]) and w() == 1


SCRIPT = """
import time
from gimbal.rewards.function import Function
def stuck(completions):
    import os
    open("{file}", "w").write("here")
    while True:
        pass
import sys; sys.path.insert(0, "{here}")
import made
Function(function=stuck, writes=('{file}',))(made.group(made.TASK, made.rollout(text="x")))
"""


@pytest.mark.slow
def test_the_worker_of_a_killed_script_without_main_guard_dies_with_it_and_its_directory_goes(tmp_path):
    file = tmp_path / "file"
    file.touch()
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(file=file, here=Path(__file__).parents[1]))
    parent = subprocess.Popen([sys.executable, str(script)], env=os.environ | {"TMPDIR": str(tmp_path)})
    end = time.monotonic() + 60
    while not file.read_text() and time.monotonic() < end:
        time.sleep(0.02)
    supervisor = int(Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()[0])
    pid = _own(supervisor)
    assert _alive(pid) and list(tmp_path.glob("gimbal-sandbox-*"))
    parent.kill()
    parent.wait()
    assert _gone(pid) and _gone(supervisor) and not list(tmp_path.glob("gimbal-sandbox-*"))


def test_an_end_that_is_told_before_the_beginning_was_read_is_no_failure_to_begin(monkeypatch):
    status, theirs = os.pipe()
    os.write(theirs, _supervisor.READY + b"1280")
    monkeypatch.setattr(_supervisor.os, "pipe", lambda: (status, theirs))
    monkeypatch.setattr(_supervisor.kernel, "clone", lambda flags: 1 << 30)
    order = Order(
        connection=0, verdict=0, lock=0, parent=0, target="", memory=0, network=True, scratch="", directory="", reads=(), writes=()
    )  # fmt: skip
    assert _supervisor._launch(order, lambda order, lacking: None) == (1 << 30, status)
    assert os.read(status, 100) == b"1280"
    os.close(status)
