"""What happens to a run by accident: no room, no permission, Ctrl-C twice, a closed terminal, a copy, odd names. One sentence that
says what to type, exit code 2 where it cannot go on, and no step lost that a checkpoint holds."""

import json
import os
import pty
import resource
import select
import shlex
import shutil
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from gimbal import cli, config, recipes
from gimbal.report.files import JsonLines, deterministic
from gimbal.runtime import checkpoint, directories

QUICK = str(Path(__file__).parent / "quick_recipe.py") + ":quick"
WORDS = ["train", QUICK, "threads=1", "held_out=None", "max_staleness=0"]
PART = """
import signal
from dataclasses import dataclass
from gimbal.rewards.base import AbstractReward

calls = []

@dataclass(frozen=True, kw_only=True)
class Length(AbstractReward):
    name: str = "length"

    def __call__(self, group):
        calls.append(group.index)
        if len(calls) == 3:  # in the second step
            {done}
        return [float(len(set(rollout.text))) for rollout in group.rollouts]
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def part(done="pass"):
    """A reward of the user's own in this process, and what it does in the second step."""
    file = Path("mine.py")
    file.write_text(PART.format(done=done))
    config.parts.sys.modules.pop(str(file.resolve()), None)


@contextmanager
def files_up_to(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def rows(directory):
    return [deterministic(row) for row in JsonLines(Path(directory, "metrics.jsonl")).read()]


@pytest.mark.slow
def test_no_room_at_any_time(capsys):
    """Not for the recipe, not for the first step's row, not for the checkpoint; with room the same command, or a resume, goes on."""
    assert cli.main([*WORDS, "--name", "whole"]) == 0
    recipe = Path("runs/whole/recipe.yaml").stat().st_size
    capsys.readouterr()

    def refused(size, *words):
        with files_up_to(size):
            assert cli.main(list(words)) == 2
        err = capsys.readouterr().err
        assert "could not be written: this shell allows no file above" in err and "Traceback" not in err
        return err.splitlines()[-1]

    for words in ([], ["--name", "x"]):
        assert "recipe.yaml" in refused(recipe // 2, *WORDS, *words)
        assert [path.name for path in Path("runs").iterdir()] == ["whole"]
    assert "rollouts.jsonl" in refused(recipe + 300, *WORDS, "--name", "x"), "in the first step"
    assert sorted(path.name for path in Path("runs/x").iterdir()) == ["recipe.yaml", "stopped.json"]
    assert cli.main([*WORDS, "--name", "x"]) == 0 and rows("runs/x") == rows("runs/whole")
    assert "model" in refused(100_000, *WORDS, "--name", "y")
    assert len(rows("runs/y")) == 2 and checkpoint.newest(Path("runs/y")) is None
    assert cli.main(["train", "--resume", "y"]) == 0 and rows("runs/y") == rows("runs/whole")


def test_a_file_where_directories_are_wanted_is_named(tmp_path):
    (tmp_path / "f").touch()
    with pytest.raises(ValueError, match=rf"\({tmp_path / 'f'}: a file lies where a directory is expected"):
        directories.create(recipes.load(QUICK), QUICK, "x", tmp_path / "f" / "g")


@pytest.mark.parametrize("target", ["/sys", "/proc"])
def test_a_place_where_nothing_can_be_written(target, capsys):
    Path("runs").symlink_to(target)
    for words in ([], ["--name", "x"]):
        assert cli.main([*WORDS, *words]) == 2
        err = capsys.readouterr().err
        assert (
            "cannot be created" in err
            and err.endswith("; give another place with --runs DIRECTORY\n")
            and err.count("\n") == 1
        )


def test_a_run_that_may_only_be_read_is_copied_first(capsys, monkeypatch):
    run = recipes.load(QUICK)
    directory = directories.create(run, QUICK, "x y", Path("runs"))
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != directory)  # root may write everywhere
    way = "cp -r 'runs/x y' COPY && chmod -R u+w COPY && gimbal train --resume COPY\n"
    for words in ([], ["steps=99"]):
        assert cli.main(["train", "--resume", "x y", *words]) == 2
        err = capsys.readouterr().err
        assert "cannot be written to" in err and err.endswith(way)
    assert [path.name for path in directory.iterdir()] == ["recipe.yaml"]


@pytest.mark.slow
def test_ctrl_c_twice_before_a_checkpoint_says_how_to_start_again(capsys):
    part("signal.raise_signal(signal.SIGINT); signal.raise_signal(signal.SIGINT)")
    words = [*WORDS, "reward=mine.py:Length()", "--name", "x"]
    assert cli.main(words) == 130
    command = capsys.readouterr().err.splitlines()[-1].partition("to start again from step 1: gimbal ")[2]
    assert command == "train --resume runs/x" and len(rows("runs/x")) == 1
    part()
    assert cli.main(shlex.split(command)) == 0
    assert cli.main([*words[:-1], "whole"]) == 0 and rows("runs/x") == rows("runs/whole")


@pytest.mark.slow
def test_a_closed_terminal_ends_a_run_at_a_checkpoint(place):
    """The kernel's SIGHUP, and a terminal to which no word can be written any more."""
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, which runs respect
        os.environ |= {"OMP_NUM_THREADS": "1", "TERM": "xterm"}
        os.execv(sys.executable, [sys.executable, "-m", "gimbal", *WORDS, "steps=5000", "--name", "x"])
    try:
        end = time.monotonic() + 120
        while not Path("runs/x/metrics.jsonl").exists():
            assert time.monotonic() < end
            if select.select([terminal], [], [], 0.1)[0]:
                os.read(terminal, 65536)
    finally:
        os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    newest, done = checkpoint.newest(place / "runs" / "x"), len(rows("runs/x"))
    assert checkpoint.step_of(newest) == done < 25 and not Path("runs/x/stopped.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mein Lauf: ü, 1", "[a]*"])
def test_a_run_of_any_name_is_found_copied_and_continued(place, capsys, name):
    runs = "meine Läufe"
    part("raise KeyError('key')")
    words = [*WORDS, "reward=mine.py:Length()", "checkpoint_every=1"]
    assert cli.main([*words, "--runs", runs, "--name", name]) == 2
    command = capsys.readouterr().err.splitlines()[-1].partition("continue with: gimbal ")[2]
    part()
    copied = shutil.copytree(Path(runs, name), place / "other place" / "copy")
    for path in copied.rglob("*"):
        os.utime(path, (2**31, 2**31))  # as where the clock was set back since
    assert cli.main(shlex.split(command)) == 0
    part()
    assert cli.main(["train", "--resume", str(copied)]) == 0
    assert rows(Path(runs, name)) == rows(copied) and len(rows(copied)) == 2
    for command in (["report", name], ["doctor", name], ["compare", name], ["export", name, "out dir"]):
        assert cli.main([*command, "--runs", runs]) == 0, command
    assert Path(runs, name, "report.html").is_file() and Path("out dir/README.md").is_file()
    assert json.loads(Path(runs, name, "summary.json").read_text())["steps"] == 2
