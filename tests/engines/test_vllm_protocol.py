"""What a vLLM server may answer wrongly, by a server of our own that speaks its protocol. The real one: test_vllm_server.py."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from asking import drain, ids, request

import gimbal.engines
from gimbal.engines.base import Unserved
from gimbal.engines.vllm_http import Client, greet
from gimbal.engines.vllm_server import VLLMServer
from gimbal.ops import philox
from gimbal.policies.token import CausalLM

CONFIG = {"dtype": "torch.float32", "logprobs_mode": "processed_logprobs", "max_model_len": 512}


class Fake:
    """Draws by each request's seed. ``faults``: (path, what goes wrong, how often)."""

    def __init__(self, *faults, port=0, **config):
        self.faults, self.config, self.seen, self.version = (
            [list(fault) for fault in faults],
            CONFIG | config,
            Counter(),
            "default",
        )
        self.server = ThreadingHTTPServer(("127.0.0.1", port), self.handler())
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def handler(fake):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.do_POST()

            def do_POST(self):
                path = self.path.partition("?")[0]
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "null")
                fake.seen[path] += 1
                fault = next((fault for fault in fake.faults if fault[0] == path and fault[2]), None)
                if fault:
                    fault[2] -= 1
                fake.answer(self, path, body, fault[1] if fault else "")

            def log_message(self, *words):
                pass

        return Handler

    def answer(self, handler, path, body, fault):
        found = {
            "/server_info": {"vllm_config": {"model_config": self.config}},
            "/weight_info": {"weight_version": self.version},
            "/weight_checker": {"checksums": {}},
        }.get(path, {})
        if path == "/update_weight_version":
            self.version = body["new_version"]
        if path == "/inference/v1/generate":
            found = {"choices": [self.choice(body, fault)]}
        text = json.dumps(found).encode()
        if fault == "slow":
            time.sleep(0.6)
        handler.send_response(int(fault) if fault.isdigit() else 200)
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text[: len(text) // 2] if fault == "cut off" else b"<html>" if fault == "no JSON" else text)

    def choice(self, body, fault):
        count = body["sampling_params"]["max_tokens"]
        drawn = philox("fake", body["sampling_params"]["seed"]).integers(20, 40, size=count).tolist()
        logprobs = [-0.5] * (count - 1 if fault == "one too few" else count)
        if fault in ("NaN", "null"):
            logprobs[1] = {"NaN": -9999.0, "null": None}[fault]
        version = "somebody/1" if fault == "other weights" else self.version
        return {
            "token_ids": drawn,
            "finish_reason": "length",
            "weight_versions": [{"version": version, "start": 0, "end": count}],
            "logprobs": {"content": [{"token_id": t, "logprob": p} for t, p in zip(drawn, logprobs, strict=False)]},
        }


@pytest.fixture(scope="module")
def policy():
    return CausalLM().load()


@pytest.fixture
def serve(policy):
    """An engine that is loaded, and the server it talks to."""
    up = []

    def start(*faults, patience=5.0, **config):
        up.append(Fake(*faults, **config))
        engine = VLLMServer(
            url=f"http://127.0.0.1:{up[-1].port}", precision="float32", slots=4, patience=patience
        ).start(policy)
        engine.load(0, policy.state_dict())
        return engine, up[-1]

    yield start
    for fake in up:
        fake.stop()


def drawn(engine, count=6):
    for sample in range(count):
        engine.submit(request(sample=sample, max_length=5))
    return {key: ids(rollout) for key, rollout in drain(engine).items()}


GENERATE = "/inference/v1/generate"


@pytest.mark.parametrize("fault", ["500", "503", "cut off", "no JSON", "slow"])
def test_what_passes_is_asked_again(serve, capsys, fault):
    whole = drawn(serve()[0])
    engine, fake = serve((GENERATE, fault, 1), patience=0.3 if fault == "slow" else 5.0)
    assert drawn(engine) == whole and len(whole) == 6
    assert "is lost" in capsys.readouterr().err and fake.seen["/collective_rpc"] == 2, "it is given the weights again"


@pytest.mark.parametrize("path", [GENERATE, "/collective_rpc"])
def test_what_does_not_pass_ends_the_run(serve, path):
    with pytest.raises(Unserved, match=r"lost 4 times with no rollout finished in between.*status 500.*--resume"):
        drawn(serve((path, "500", 100))[0])


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("one too few", "5 tokens and 4 log-probabilities"),
        ("NaN", "a log-probability of -9999.0"),
        ("null", "a log-probability of None"),
        ("other weights", "another run trains with it"),
        ("400", "answers POST /inference/v1/generate with 400"),
    ],
)
def test_what_is_wrong_is_said_at_once(serve, fault, said):
    with pytest.raises(ValueError, match=said):
        drawn(serve((GENERATE, fault, 1))[0])


def test_a_server_that_cannot_be_trained_with(serve, policy):
    with pytest.raises(ValueError, match=r"/weight_info with 404.*start it with VLLM_SERVER_DEV_MODE=1"):
        serve(("/weight_info", "404", 1))


def test_a_server_of_other_settings(serve):
    with pytest.raises(ValueError, match=r"gives raw_logprobs.*--logprobs-mode processed_logprobs"):
        serve(logprobs_mode="raw_logprobs")


def test_a_server_of_another_precision(serve):
    with pytest.raises(ValueError, match=r"set engine\.precision=bfloat16"):
        serve(dtype="torch.bfloat16")


def test_a_server_that_goes_and_comes_back(serve, capsys):
    engine, fake = serve(patience=20.0)
    whole = drawn(engine)
    fake.stop()
    again = []
    threading.Timer(0.5, lambda: again.append(Fake(port=fake.port))).start()
    assert drawn(engine) == whole
    assert again[0].version == fake.version and again[0].seen["/collective_rpc"] == 1
    assert engine.reading().version == 0 and "is lost" in capsys.readouterr().err
    again[0].stop()


def test_a_server_that_does_not_come_back(serve):
    engine, fake = serve(patience=0.5)
    fake.stop()
    with pytest.raises(Unserved, match=r"has not answered for .* start it again and continue with --resume"):
        drawn(engine)


def test_a_server_that_was_started_again_between_two_steps_is_given_the_weights(serve):
    engine, fake = serve()
    fake.version = "default"
    assert engine.reading().version == 0 and fake.seen["/collective_rpc"] == 2


def test_what_fits():
    for wrong, said in (
        ({"url": "localhost:8000"}, "http://HOST:PORT"),
        ({"url": "http://a:1", "tensor_parallel": 2}, "that server has its own"),
        ({"slots": 0}, "slots"),
        ({"patience": 0.0}, "above 0"),
    ):
        with pytest.raises(ValueError, match=said):
            VLLMServer(**wrong)


@pytest.mark.parametrize("keeper_too", [False, True])
def test_a_child_ends_with_its_parent_however_that_ends(tmp_path, keeper_too):
    """SIGKILL leaves nobody to stop it: the keeper sees the pipe close, and ends all that the command has started. Ray kills the
    children of a worker too."""
    keeper = Path(gimbal.engines.__path__[0]) / "_keeper.py"
    tree = f"sleep 300 & echo $! >{tmp_path}/inner; echo $$ >{tmp_path}/outer; wait"
    parent = f"""
import subprocess, sys, time
kept = subprocess.Popen([sys.executable, {str(keeper)!r}, "sh", "-c", {tree!r}], stdin=subprocess.PIPE)
open({str(tmp_path / "keeper")!r}, "w").write(str(kept.pid))
time.sleep(300)
"""
    process = subprocess.Popen([sys.executable, "-c", parent])
    files = [tmp_path / name for name in ("inner", "outer", "keeper")]
    end = time.monotonic() + 30
    while not all(file.exists() and file.read_text().strip() for file in files):
        assert time.monotonic() < end
        time.sleep(0.02)
    *pids, keeper_id = (int(file.read_text()) for file in files)
    if keeper_too:
        os.kill(keeper_id, signal.SIGKILL)
    process.send_signal(signal.SIGKILL)
    process.wait()
    while any(_alive(pid) for pid in pids):
        assert time.monotonic() < end, "it outlived its parent"
        time.sleep(0.02)


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_server_that_is_not_there_is_waited_for_with_a_word(capsys):
    with pytest.raises(ValueError, match=r"there is no vLLM server at http://127\.0\.0\.1:9;"):
        greet(Client(url="http://127.0.0.1:9", patience=0.6), "float32")
    assert "waiting for the vLLM server at http://127.0.0.1:9, at most 1 s (engine.patience)" in capsys.readouterr().err
