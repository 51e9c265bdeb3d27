"""Environments behind an address, held against the servers that OpenEnv's own package makes."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("openenv", reason="openenv is not here: make test-environments installs it")
sys.path[:0] = [str(Path(__file__).parent)]
import hermes
import serving

from gimbal.cli import main
from gimbal.environments.base import Failure
from gimbal.environments.openenv import OpenEnv
from gimbal.records import Task


@pytest.fixture(scope="module")
def address():
    process, address = serving.guessing()
    yield address
    process.kill()


def test_it_sees_what_the_packages_own_client_sees(address):
    from openenv.core.generic_client import GenericEnvClient

    live = OpenEnv(address=address, action="number").open()
    with GenericEnvClient(base_url=address).sync() as theirs:
        assert json.loads(live.reset(Task(id="a", seed=4), 4)) == theirs.reset(seed=4).observation
        for number in ("3", "17", "9"):
            mine, other = live.step(number), theirs.step({"number": number})
            assert json.loads(mine.observation) == other.observation
            assert (mine.reward, mine.terminated) == (other.reward or 0.0, other.done)
    live.close()


def test_what_is_no_action_is_told_and_what_breaks_is_a_failure(address):
    live = OpenEnv(address=address, action="number", shown="hint").open()
    assert live.reset(Task(id="a", columns={"reset": {"most": 3}}), 0) == "1 to 3", "the task's own arguments"
    wrong = live.step("about seven")
    assert wrong.observation.startswith("That is no action: Input should be a valid integer") and wrong.errors == 1
    with pytest.raises(Failure, match="EXECUTION_ERROR: the number of the beast"):
        live.step("666")
    with pytest.raises(ValueError, match=r"shown='text', and .* observes hint"):
        OpenEnv(address=address, shown="text").open().reset(Task(id="a"), 0)
    free_form = OpenEnv(address=address, action="").open()
    free_form.reset(Task(id="a", seed=1), 1)
    assert free_form.step("seven").observation.startswith("That is no JSON object")
    assert "hint" in free_form.step('{"number": 7}').observation
    with pytest.raises(ValueError, match="address='localhost'; it must be one"):
        OpenEnv(address="localhost")


def test_a_server_that_is_full_is_waited_for_and_one_that_is_gone_is_named():
    process, address = serving.guessing(sessions=1)
    first = OpenEnv(address=address, action="number", shown="hint").open()
    first.reset(Task(id="a"), 0)
    with pytest.raises(Failure, match=r"has had no session free for 0\.3 seconds") as failed:
        OpenEnv(address=address, action="number", patience=0.3).open().reset(Task(id="a"), 0)
    assert failed.value.late
    threading.Timer(0.5, first.close).start()
    second = OpenEnv(address=address, action="number", shown="hint").open()
    assert second.reset(Task(id="a"), 0) == "1 to 20"
    with pytest.raises(Failure, match="broke off"):
        second.step("999")
    process.wait(10)
    with pytest.raises(Failure, match="cannot be reached"):
        second.reset(Task(id="a"), 0)


@pytest.mark.slow  # the package writes an environment, and a model trains in it
def test_one_command_trains_in_the_environment_that_the_package_makes(tmp_path, monkeypatch):
    """``openenv init`` writes an echo whose reward is 0.1 for each character, at most 1."""
    monkeypatch.chdir(tmp_path)
    script = Path(sys.executable).parent / "openenv"
    subprocess.run(
        [sys.executable, script, "init", "echo_env", "--output-dir", "made"], check=True, capture_output=True
    )
    app = Path("made/echo_env/server/app.py")
    app.write_text(app.read_text().replace("max_concurrent_envs=1,", "max_concurrent_envs=8,"))
    port = serving.free()
    command = [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(port), "--log-level", "error"]
    process = serving.served(command, port, "made/echo_env")
    Path("rows.jsonl").write_text('{"prompt": [{"role": "user", "content": "Say something long."}]}\n' * 2)
    tool = f"OpenEnv(address='ws://127.0.0.1:{port}',shown='echoed_message')"
    words = (
        f"train grpo model={hermes.saved('model')} tasks=rows.jsonl rewards=() max_length=24 steps=3 prompts_per_step=1"
    )
    small = ["num_generations=4", f"workflow=Dialogue(tool={tool},answers=0)", "threads=1", "--runs", "runs"]
    try:
        assert main([*words.split(), *small]) == 0
    finally:
        process.kill()
    (metrics,) = Path("runs").glob("*/metrics.jsonl")
    rows = [json.loads(row) for row in metrics.read_text().splitlines() if '"loss"' in row]
    assert (
        len(rows) == 3 and 0 < rows[-1]["reward/mean"] <= 1 and not any("error" in name for row in rows for name in row)
    )


@pytest.fixture
def answering():
    """A server that answers each message with what a list says; None: not at all."""
    from websockets.sync.server import serve

    said = []

    def handle(socket):
        for _ in socket:
            if (answer := said.pop(0)) is not None:
                socket.send(answer)

    with serve(handle, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield said, f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()


@pytest.mark.parametrize(
    "answer",
    [
        "{}",
        "[1]",
        '{"type": "observation"}',
        '{"type": "observation", "data": {"observation": [1, 2]}}',
        '{"type": "observation", "data": {"reward": "good"}}',
        '{"type": "observation", "data": {"reward": true}}',
        '{"type": "observation", "data": {"done": "false"}}',
        '{"type": "error", "data": "broken"}',
        '{"type": "error", "data": {"code": "VALIDATION_ERROR", "errors": ["x"]}}',
        "[" * 100_000,
    ],
)
def test_what_is_not_the_protocol_is_a_failure(answering, answer):
    said, address = answering
    said.append(answer)
    with pytest.raises(Failure, match=r"is not OpenEnv's protocol|broke off"):
        OpenEnv(address=address).open().reset(Task(id="a"), 0)


def test_an_answer_that_does_not_come_is_late(answering):
    said, address = answering
    said.append(None)
    with pytest.raises(Failure, match=r"has not answered within 0\.3 seconds") as told:
        OpenEnv(address=address, patience=0.3).open().reset(Task(id="a"), 0)
    assert told.value.late
