"""A live run followed on loopback: by hand over HTTP, and by a browser while a real run trains."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
from browser import chromium, opened, until
from test_page import described, make_run

from gimbal.report.files import JsonLines
from gimbal.report.serve import server


@contextmanager
def served(*directories):
    running = server(directories)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield running.server_address[1]
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


def get(port, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def news(port, marks):
    status, text = get(port, "/news?marks=" + json.dumps(marks).replace(" ", "").replace('"', "%22"))
    return json.loads(text) if status == 200 else status


def test_only_what_is_new_is_told(tmp_path):
    run = make_run(tmp_path / "a", rollouts=[described(1)], ended=False)
    with served(run) as port:
        status, text = get(port, "/")
        assert status == 200 and "connect-src 'self'" in text
        nothing = ["0/0/none"]
        first = news(port, nothing)["data"]
        assert first["rollouts"]["step"] == [1] and first["restart"]  # another file than none
        marks = first["marks"]
        assert news(port, marks) == 204
        JsonLines(run / "rollouts.jsonl").append(described(2, text="new"))
        told = news(port, marks)
        assert told["data"]["rollouts"]["text"] == ["new"] and not told["data"]["restart"]
        assert told["details"][0][0]["pieces"] == described()["pieces"]
        JsonLines(run / "metrics.jsonl").append({"step": 3, "loss": 0.1})
        later = news(port, told["data"]["marks"])["data"]
        assert later["runs"][0]["steps"] == [1, 2, 3] and later["rollouts"]["step"] == []
        assert news(port, later["marks"]) == 204


def test_a_resumed_run_is_told_anew(tmp_path):
    run = make_run(tmp_path / "a", rollouts=[described(step) for step in (1, 2, 3)], ended=False)
    with served(run) as port:
        marks = news(port, ["0/0/none"])["data"]["marks"]
        rollouts = run / "rollouts.jsonl"
        JsonLines(rollouts).cut(len(rollouts.read_bytes().splitlines(keepends=True)[0]))
        JsonLines(run / "rollouts.jsonl").append(described(2, text="again " * 500))
        told = news(port, marks)["data"]
        assert told["restart"] and told["rollouts"]["step"] == [1, 2]


def test_no_other_host_and_no_other_path(tmp_path):
    with served(make_run(tmp_path / "a")) as port:
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1:1", ""):
            assert get(port, "/", Host=host)[0] == 403
        assert get(port, "/", Host=f"localhost:{port}")[0] == 200
        assert get(port, "/../recipe.yaml")[0] == 404 and get(port, "/recipe.yaml")[0] == 404
        for marks in ("", "?marks=1", "?marks=[1]", "?marks=[%221/-5/x%22]", "?marks=[]", "?marks=[%22a%22]"):
            assert get(port, "/news" + marks)[0] == 400
        # Of this machine's addresses it listens on loopback alone.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            own = probe.getsockname()[0]
        if not own.startswith("127."):
            with pytest.raises(OSError), socket.create_connection((own, port), timeout=2):
                pass


def command(*words):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "gimbal", *words], stdout=subprocess.PIPE, text=True, env=environment
    )


@pytest.mark.slow
def test_a_browser_follows_a_run_that_trains(tmp_path):
    """`gimbal train` and `gimbal report --serve` as a user starts them, side by side."""
    settings = ["steps=5", "prompts_per_step=2", "num_generations=4", "held_out=None", "record_every=1", "threads=1"]
    with chromium() as browser:
        training = command("train", "demo", *settings, "--runs", str(tmp_path), "--name", "live")
        serving = None
        try:
            end = time.monotonic() + 60
            while not (tmp_path / "live" / "recipe.yaml").exists():
                assert time.monotonic() < end and training.poll() is None
                time.sleep(0.05)
            # The page starts more slowly than five steps take on a busy machine: the run waits for it.
            training.send_signal(signal.SIGSTOP)
            serving = command("report", "live", "--runs", str(tmp_path), "--serve")
            url = re.match(r"http://127\.0\.0\.1:\d+/", serving.stdout.readline())[0]
            with opened(browser, url) as page:
                before = page.evaluate("state.runs[0].steps.length")
                training.send_signal(signal.SIGCONT)
                until(page, "state.runs[0].ended && state.rollouts.length >= 8", 60)
                assert before < 5 and page.evaluate("state.runs[0].steps") == list(range(1, 6))
                assert "5 steps" in page.inner_text("#conclusion") and page.inner_text("#live") == "ended"
                last = json.loads((tmp_path / "live" / "rollouts.jsonl").read_text().splitlines()[-1])
                page.fill("#filter [name=step-low]", "5")
                until(page, "found.length && found.every((r) => r.step === 5)")
                assert last["text"] in page.evaluate("found.map((r) => r.text)")
        finally:
            for process in (training, serving):
                if process is not None:
                    process.kill()
                    process.wait()
