"""gimbal report, as typed."""

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
