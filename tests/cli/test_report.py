"""gimbal report, as typed; and that commands which only read a run's files start at once."""

import json
import subprocess
import sys

import pytest

from gimbal.cli import main
from gimbal.cli import report as command


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a-s0", "a-s1", "b"):
        directory = tmp_path / "runs" / name
        directory.mkdir(parents=True)
        (directory / "recipe.yaml").write_text(f"recipe: demo\nrun: {{seed: {name[-1] == '1':d}, steps: 2}}\n")
        (directory / "metrics.jsonl").write_text('{"step": 1, "pass_rate": 0.5, "tokens": 8}\n')
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("words", "written"),
    [
        (["b"], "b/report.html"),
        (["a-s*"], "report.html"),
        (["a-s0", "b", "--out", "runs/x.html"], "x.html"),
        (["runs"], "report.html"),
    ],
)
def test_where_the_page_lies(runs, capsys, words, written):
    assert main(["report", *words]) == 0
    assert (runs / written).is_file() and capsys.readouterr().out.strip().endswith(written)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "at least one run"),
        (["c"], "there is no run c"),
        (["b", "--port", "80"], "--port has no effect without --serve"),
        (["b", "--serve", "--out", "x"], "--out has no effect with --serve"),
        (["b", "--serve", "--port", "99999"], "up to 65535"),
        (["b", "--colour", "red"], "takes no key colour"),
    ],
)
def test_what_is_refused(runs, capsys, words, said):
    assert main(["report", *words]) == 2
    assert said in capsys.readouterr().err


def test_help(capsys):
    assert main(["report", "--help"]) == 0
    assert "--serve" in capsys.readouterr().out and command.HELP


def test_commands_that_read_runs_import_no_torch(runs):
    ended = {"recipe": "demo", "seed": 0, "steps": 1, "seconds_training": 1.0, "tokens_generated": 8, "max_age": 1}
    ended |= {
        "before": {"eval/score": 0.1},
        "after": {"eval/score": 0.5},
        "mean_discrepancy": 0.0,
        "peak_memory_mb": 1.0,
    }
    for name in ("a-s0", "a-s1", "b"):
        (runs / name / "summary.json").write_text(json.dumps(ended))
    said = {
        ("list", "recipes"): 0,
        ("doctor", "b"): 0,
        ("doctor", "nope"): 2,
        ("report", "b"): 0,
        ("report", "a-s*"): 0,
        ("compare", "a-s*", "x=b"): 0,
        ("train", "grop"): 2,  # there is no such recipe
    }
    program = (
        "import sys; from gimbal.cli import main\n"
        f"for words, code in {said}.items(): assert main(words) == code, words\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "there is no recipe grop; did you mean grpo? (gimbal list recipes)" in done.stderr
