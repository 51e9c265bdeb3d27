"""The page is whole, opens from disk, and no text of a model gets out of its place."""

import base64
import gzip
import hashlib
import json
import re

import pytest
from test_files import conclude

from gimbal.report import page
from gimbal.report.files import JsonLines
from gimbal.report.page import describe, write_report

ATTACK = "</script><img src=x onerror=\"document.title='owned'\"><!--<script>{{js}} \u2028 \ud800 &lt; 数"


def described(step=1, **changes):
    known = {
        "step": step,
        "group": 0,
        "sample": 0,
        "task": ATTACK,
        "prompt": ATTACK,
        "answer": None,
        "text": ATTACK,
        "pieces": [ATTACK, "\n", ""],
        "stop": "stop",
        "score": 1.0,
        "scores": {ATTACK: 1.0},
        "version": [0, 0, 0],
        "behavior": [-1.0, -0.5, -0.0],
        "proximal": None,
        "advantage": [1.0, 1.0, 1.0],
        "entropy": None,
        "mask": None,
        "part": None,
        "turn": None,
        "fork": None,
        "solved": True,
    }
    return known | changes


def element(path, name):
    text = re.search(rf'<script type="text/plain" id="{name}">(.*?)</script>', path.read_text(), re.DOTALL)[1]
    return json.loads(gzip.decompress(base64.b64decode(text)))


def make_run(directory, steps=2, rollouts=(), recipe="recipe: demo\nrun: {seed: 0}\n", ended=True):
    directory.mkdir(exist_ok=True)
    for step in range(1, steps + 1):
        row = {"step": step, "loss": 0.5 / step, "pass_rate": step / steps, "time/step": 1.0, "tokens": 10.0 * step}
        JsonLines(directory / "metrics.jsonl").append(row)
    for row in rollouts:
        JsonLines(directory / "rollouts.jsonl").append(row)
    (directory / "recipe.yaml").write_text(recipe)
    if ended:
        conclude(directory)
    return directory


def test_a_whole_run(tmp_path):
    run = make_run(tmp_path / "a", rollouts=[described()])
    JsonLines(run / "metrics.jsonl").append({"step": 3, "mismatch/prob_diff": float("nan")})
    data = element(write_report(run), "data")
    (shown,) = data["runs"]
    assert shown["steps"] == [1, 2, 3]
    assert shown["metrics"]["loss"] == [0.5, 0.25, None] and shown["metrics"]["mismatch/prob_diff"] == [
        None,
        None,
        None,
    ]
    assert shown["evaluation"] == [["pass@1", 0.25, 0.75], ["greedy", 0.5, 0.25]]
    assert shown["recipe"] == "recipe: demo\nrun: {seed: 0}\n" and shown["seed"] == 0
    assert data["conclusion"].startswith(
        "The held-out pass@1 (sampled) rose from 0.250 to 0.750 (+0.500). Look at: loss."
    )
    index, (detail,) = data["rollouts"], element(run / "report.html", "chunk-0")
    assert index["tasks"] == [[ATTACK, ATTACK, None]] and index["task"] == [0] and index["length"] == [3]
    assert index["text"] == [ATTACK] and index["solved"] == [True] and index["chunk"] == [[0, 0]]
    assert detail == {name: described().get(name) for name in page.DETAIL}


def test_text_of_a_model_stays_data(tmp_path):
    attacked = make_run(tmp_path / "a", rollouts=[described()], recipe="recipe: |\n  " + ATTACK.replace("\ud800", ""))
    clean = make_run(tmp_path / "b")
    attacked, plain = write_report(attacked).read_text(), write_report(clean).read_text()
    assert attacked.count("<script") == plain.count("<script") + 1  # the chunk of details
    for tag in ("<img", "<!--", "onerror", "owned"):
        assert attacked.count(tag) == plain.count(tag)


def test_only_our_scripts_may_run(tmp_path):
    text = write_report(make_run(tmp_path / "a")).read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert len(hashes) == 2 and re.findall(r"sha256-([^']*)'", policy.split("style-src")[0]) == hashes
    assert "default-src 'none'" in policy and "connect-src 'none'" in policy and "unsafe" not in policy
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', text) == []
    assert not re.search(r"\{\{\w+\}\}", text) and "Permission is hereby granted" in text


def test_a_name_stays_text(tmp_path):
    directory = make_run(tmp_path / "<b>{{data}} & co")
    assert "<title>&lt;b&gt;{{data}} &amp; co · gimbal</title>" in write_report(directory).read_text()


@pytest.mark.parametrize("steps", [0, 1])
def test_a_run_that_has_hardly_begun(tmp_path, steps):
    for step in range(steps):
        JsonLines(tmp_path / "metrics.jsonl").append({"step": step + 1, "loss": 0.5})
    data = element(write_report(tmp_path), "data")
    (run,) = data["runs"]
    assert run["cost"]["text"] == [f"The run is not finished; {steps} of its steps are recorded."]
    assert run["steps"] == list(range(1, steps + 1)) and data["rollouts"]["step"] == [] and run["recipe"] == ""


def test_many_rollouts_are_thinned_evenly_in_each_run(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "DECISIONS", 30)
    runs = [make_run(tmp_path / name, rollouts=[described(step) for step in range(1, 101)]) for name in "ab"]
    data, details = describe(runs)
    index = data["rollouts"]
    for run in (0, 1):
        assert [step for step, of in zip(index["step"], index["run"], strict=True) if of == run] == [1, 25, 50, 75, 100]
    assert data["recorded"] == 200 and sum(map(len, details)) == 10


def test_chunks_hold_neighbours(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "CHUNK", 5)
    run = make_run(tmp_path / "a", rollouts=[described(sample=i, pieces=[str(i)] * 3) for i in range(5)])
    data, details = describe([run])
    assert [len(chunk) for chunk in details] == [2, 2, 1]
    assert [details[chunk][at]["pieces"][0] for chunk, at in data["rollouts"]["chunk"]] == list("01234")


def test_older_records_are_read(tmp_path):
    old = described(score=0.5)
    for name in ("mask", "part", "turn", "fork", "solved"):
        del old[name]
    data, ((detail,),) = describe([make_run(tmp_path / "a", rollouts=[old])])
    assert data["rollouts"]["solved"] == [False] and detail["mask"] is None


def test_several_runs_lie_beside_the_first(tmp_path):
    runs = [make_run(tmp_path / name) for name in "ab"]
    assert write_report(*runs) == tmp_path / "report.html"
    assert "<title>a, b · gimbal</title>" in (tmp_path / "report.html").read_text()
    assert write_report(*runs, path=tmp_path / "c.html") == tmp_path / "c.html"
