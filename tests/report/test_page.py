"""The page is whole, opens from disk, and no text of a model gets out of its place."""

import json
import re

import pytest
from test_files import summary

from gimbal.report import page
from gimbal.report.files import JsonLines
from gimbal.report.page import write_report

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
    }
    return known | changes


def data_of(path):
    text = path.read_text()
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_a_whole_run(tmp_path):
    metrics = JsonLines(tmp_path / "metrics.jsonl")
    metrics.append({"step": 1, "loss": 0.5, "mismatch/prob_diff": float("nan")})
    metrics.append({"step": 2, "loss": 0.25, "eval/pass@1": 0.5})
    JsonLines(tmp_path / "rollouts.jsonl").append(described())
    (tmp_path / "recipe.yaml").write_text("recipe: demo\nseed: 0\n")
    summary().save(tmp_path / "summary.json")
    data = data_of(write_report(tmp_path))
    assert data["steps"] == [1, 2]
    assert data["metrics"] == {"loss": [0.5, 0.25], "eval/pass@1": [None, 0.5], "mismatch/prob_diff": [None, None]}
    assert data["exam"] == [["pass@1", 0.25, 0.75], ["greedy", 0.5, 0.25]]
    assert data["rollouts"] == [described()]
    assert data["recipe"] == "recipe: demo\nseed: 0\n"
    assert "20 steps" in data["words"][0] and "6 zero_variance" in data["words"][1]


def test_text_of_a_model_stays_data(tmp_path):
    JsonLines(tmp_path / "rollouts.jsonl").append(described())
    (tmp_path / "recipe.yaml").write_text(ATTACK.replace("\ud800", ""))
    clean = tmp_path / "clean"
    clean.mkdir()
    attacked, plain = write_report(tmp_path).read_text(), write_report(clean).read_text()
    for tag in ("<script", "</script", "<img", "<!--"):
        assert attacked.count(tag) == plain.count(tag)


def test_a_name_stays_text(tmp_path):
    directory = tmp_path / "<b>{{data}} & co"
    directory.mkdir()
    assert "<title>&lt;b&gt;{{data}} &amp; co · gimbal</title>" in write_report(directory).read_text()


@pytest.mark.parametrize("steps", [0, 1])
def test_a_run_that_has_hardly_begun(tmp_path, steps):
    for step in range(steps):
        JsonLines(tmp_path / "metrics.jsonl").append({"step": step + 1, "loss": 0.5})
    data = data_of(write_report(tmp_path))
    assert data["words"] == [f"The run has not ended; {steps} of its steps are recorded."]
    assert data["steps"] == list(range(1, steps + 1)) and data["rollouts"] == [] and data["recipe"] == ""


def test_nothing_is_fetched(tmp_path):
    text = write_report(tmp_path).read_text()
    assert "default-src 'none'" in text
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', text) == []
    assert not re.search(r"\{\{\w+\}\}", text)


def test_many_rollouts_are_thinned_evenly(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "DECISIONS", 15)
    for step in range(1, 101):
        JsonLines(tmp_path / "rollouts.jsonl").append(described(step))
    shown = [row["step"] for row in data_of(write_report(tmp_path))["rollouts"]]
    assert shown == [1, 25, 50, 75, 100]
