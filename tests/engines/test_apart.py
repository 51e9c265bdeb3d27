"""Environments in processes of their own: the bits and sentences of one process, and nobody who is left."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from gimbal.engines.base import Request
from gimbal.engines.episodes import Episodes
from gimbal.environments import _apart
from gimbal.environments.apart import Apart
from gimbal.environments.gym import Environment, Gymnasium
from gimbal.policies.categorical import Categorical
from gimbal.policies.control import StepSampling
from gimbal.policies.gaussian import Gaussian
from gimbal.records import Drop

HERE = Path(__file__).parent / "apart_worlds.py"
FOUR = Categorical(observations=4, actions=2)


@pytest.fixture
def started(monkeypatch):
    """The processes that were started."""
    found, start = [], Apart.__init__

    def spied(self, source):
        start(self, source)
        found.append(self._process)

    monkeypatch.setattr(Apart, "__init__", spied)
    yield found
    gc.collect()
    for process in found:
        process.wait(10)


def engine_of(spec=FOUR, **engine):
    policy = spec.load(0)
    live = Episodes(**{"apart": True, "slots": 4} | engine).start(policy)
    live.load(0, policy.state_dict())
    return live


def tasks_of(name):
    return Gymnasium(environment=f"{HERE}:{name}" if "-" not in name else name)


def submit(engine, tasks, count, first=0):
    for index in range(first, first + count):
        engine.submit(Request(group=index, task=tasks[index], sample=0, sampling=StepSampling(max_length=30), seed=0))


def played(engine):
    found = {}
    while engine.in_flight:
        found |= {item.key[0]: item.outcome for item in engine.step()}
    return found


def bits(outcome):
    row = outcome.last
    steps = row.decisions
    tensors = (steps.observation_NSO, steps.action_NSA, steps.final_NO, row.reward_S, row.behavior_S, row.cost_S)
    return [None if one is None else one.tolist() for one in tensors], row.stop, row.scores, outcome.error


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("CartPole-v1", FOUR),
        ("Pendulum-v1", Gaussian(observations=3, actions=1)),
        ("Parts", Categorical(observations=5, actions=6)),
    ],
)
@pytest.mark.parametrize("segment", [0, 7])
def test_rollouts_are_the_bits_of_one_process(started, name, spec, segment):
    found = []
    for apart in (False, True):
        engine = engine_of(spec, slots=3, segment=segment, apart=apart)
        submit(engine, tasks_of(name), 8)
        found.append({key: bits(one) for key, one in played(engine).items()})
        engine.close()
    assert found[0] == found[1] and len(found[0]) == 8 and len(started) == 3


def test_numbers_below_the_normal_ones_are_flushed_there_as_in_a_run(started):
    """runtime/device.py has the run's own process do so, as the tests' do (shapes.py)."""
    found = []
    for apart in (False, True):
        engine = engine_of(apart=apart)
        submit(engine, tasks_of("Fading"), 1)
        found.append(bits(played(engine)[0]))
        engine.close()
    assert found[0] == found[1]
    assert (torch.tensor(found[0][0][0])[0, 2:] == 0).all()  # 0.09 of the smallest normal number and less


def test_an_engine_is_resumed_to_the_same_bits_with_and_without_processes(started):
    tasks, spec = tasks_of("Pendulum-v1"), Gaussian(observations=3, actions=1)
    engine = engine_of(spec, slots=3, segment=20)
    submit(engine, tasks, 6)
    for _ in range(27):
        engine.step()
    state = pickle.loads(pickle.dumps(engine.state_dict()))
    rest = {key: bits(one) for key, one in played(engine).items()}
    engine.close()
    for apart in (True, False):
        again = engine_of(spec, slots=3, segment=20, apart=apart)
        again.load_state_dict(pickle.loads(pickle.dumps(state)))
        assert {key: bits(one) for key, one in played(again).items()} == rest
        again.close()


@pytest.fixture
def happens(tmp_path, monkeypatch):
    """What happens in which task."""
    tasks = tasks_of("Counted")

    def told(**kinds):
        lines = [f"{tasks[int(name.strip('_'))].seed} {kind}" for name, kind in kinds.items()]
        (tmp_path / "seeds").write_text("\n".join(lines))
        monkeypatch.setenv("APART_SEEDS", str(tmp_path / "seeds"))
        return tasks

    return told


def test_whatever_breaks_costs_its_own_episode_alone(started, happens):
    tasks = happens(_1="hangs", _2="raises", _4="reset", _5="dies", _6="exits")
    engine = engine_of(slots=8, deadline=3.0)
    submit(engine, tasks, 8)
    done = played(engine)
    assert [(done[n].last.stop, done[n].last.length) for n in (0, 3, 7)] == [("terminated", 6)] * 3
    step = "environment step for task {}, turn 2"
    assert done[1].error == f"{step.format(tasks[1].id)} did not answer within 3 s"
    assert done[2].error.startswith(f"{step.format(tasks[2].id)} raised OSError: gone (apart_worlds.py, line ")
    assert done[5].error == f"{step.format(tasks[5].id)} ended its process (signal SIGKILL)"
    assert all(done[n].last.length == 2 and done[n].last.stop == "error" for n in (1, 2, 5))
    assert isinstance(done[4], Drop) and done[4].reason == "environment_error"
    assert done[4].said.startswith(f"environment reset for task {tasks[4].id}, turn 0 raised OSError: no server (apart")
    assert done[6].said.startswith(f"environment reset for task {tasks[6].id}, turn 0 raised SystemExit: enough")
    submit(engine, tasks, 8, first=8)  # it goes on, with as many as it needs
    assert all(one.last.stop == "terminated" for one in played(engine).values())
    assert len(started) == 8 + 5
    assert sum(process.poll() is None for process in started) == 8
    engine.close()


@pytest.mark.parametrize("kind", ["raises", "hangs"])
def test_the_same_is_said_in_one_process(happens, started, kind, monkeypatch):
    tasks = happens(_0=kind)
    said = []
    for apart in (True, False):
        if not apart:  # in this process the file was imported without these
            import apart_worlds

            monkeypatch.setattr(apart_worlds, "SEEDS", Path(os.environ["APART_SEEDS"]))
            monkeypatch.setitem(sys.modules, str(HERE), apart_worlds)
            monkeypatch.setattr(apart_worlds.time, "sleep", lambda seconds, wait=time.sleep: wait(6.0))
        engine = engine_of(deadline=3.0, apart=apart)
        submit(engine, tasks, 1)
        said.append(played(engine)[0].error)
        engine.close()
    assert said[0] == said[1] != ""


@pytest.mark.parametrize("name", ["Wrong", "Unmade", "Spaceless", "Missing", "Nothing-v0"])
def test_what_is_no_environment_is_refused_by_the_same_sentence(started, name):
    said = []
    for apart in (True, False):
        engine = engine_of(apart=apart)
        submit(engine, tasks_of(name), 1)
        try:
            said.append(played(engine)[0].said)
        except ValueError as error:
            said.append(str(error))
        engine.close()
    assert said[0] == said[1] != ""


def test_a_process_that_ends_while_it_opens_is_told(started):
    engine = engine_of()
    submit(engine, tasks_of("Crashing"), 1)
    with pytest.raises(ValueError, match=r"Crashing ended its process \(exit code 3\)"):
        engine.step()


def test_at_most_as_many_rest_as_there_are_slots(started):
    family = Gymnasium(environment="CartPole-v1", grid={"length": (0.4, 0.5, 0.6)})
    engine = engine_of(slots=2)
    submit(engine, family, 6)
    played(engine)
    assert sum(process.poll() is None for process in started) == 2 < len(started)
    engine.close()


def test_a_forgotten_engine_leaves_no_process(started):
    engine = engine_of(slots=2)
    submit(engine, tasks_of("Counted"), 2)
    engine.step()
    del engine
    gc.collect()
    for process in started:
        process.wait(10)


def test_an_environment_is_closed_before_its_process_ends(started, tmp_path, monkeypatch):
    monkeypatch.setenv("APART_SAID", str(tmp_path / "said"))
    engine = engine_of(slots=1)
    submit(engine, tasks_of("Closing"), 1)
    engine.step()
    engine.close()
    assert (tmp_path / "said").read_text() == "closed"


def test_what_is_apart_cannot_be_copied(started):
    apart = Apart("CartPole-v1")
    live = Environment("CartPole-v1", apart=apart)
    with pytest.raises(NotImplementedError, match="CartPole-v1 cannot be copied"):
        live.fork()
    live.close()


HUNG = """
import sys
from gimbal.environments.apart import Apart

far = Apart(sys.argv[1])
far.spaces, far.reset(seed=0)
for _ in range(3):
    far.step(0)
"""


def alive(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's part of it is Linux's")
def test_nobody_outlives_a_killed_run_even_in_code_that_holds_pythons_lock(tmp_path):
    said = tmp_path / "said"
    environment = os.environ | {"APART_SAID": str(said), "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", HUNG, f"{HERE}:Holding"], env=environment)
    deadline = time.monotonic() + 60
    while not (said.exists() and len(said.read_text().split()) == 2) and time.monotonic() < deadline:
        time.sleep(0.05)
    numbers = said.read_text().split()
    time.sleep(1.0)  # to come to the step that hangs
    assert parent.poll() is None and all(alive(number) for number in numbers)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while any(alive(number) for number in numbers) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(alive(number) for number in numbers)


def test_ctrl_c_ends_a_run_with_a_checkpoint_and_its_processes_with_it(tmp_path):
    """The signal reaches all of the terminal's processes at once."""
    said = tmp_path / "said"
    environment = os.environ | {"APART_SAID": str(said), "PYTHONPATH": os.pathsep.join(sys.path)}
    keys = [f"tasks.environment={HERE}:Telling", "held_out=none", "engine.apart=true", "engine.slots=2", "steps=10000"]
    command = [sys.executable, "-m", "gimbal", "train", "cartpole", *keys, "--name", "stopped"]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    parent = subprocess.Popen(command, env=environment, cwd=tmp_path, start_new_session=True, **pipes)
    try:
        metrics = tmp_path / "runs" / "stopped" / "metrics.jsonl"
        deadline = time.monotonic() + 120
        while not (metrics.exists() and metrics.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        numbers = set(said.read_text().split()) - {str(parent.pid)}  # which has asked one for its sizes
        assert len(numbers) == 2 and all(alive(number) for number in numbers)
        os.killpg(parent.pid, signal.SIGINT)
        words = parent.communicate(timeout=120)[1].decode()
    finally:
        parent.kill()
    assert "with a checkpoint" in words and "Traceback" not in words
    assert list((tmp_path / "runs" / "stopped" / "checkpoints").iterdir())
    assert not any(alive(number) for number in numbers)


def test_the_process_imports_no_torch():
    """That takes six times as long as all else, in each of them."""
    code = f"import sys, {_apart.__name__}, gymnasium; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
