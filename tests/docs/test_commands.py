"""Every command that a docstring or a page tells the reader to type is one that gimbal takes."""

import ast
import inspect
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import blocks
import pytest

import gimbal
from gimbal import config, recipes
from gimbal.cli import COMMANDS, main
from gimbal.environments import behaviors
from gimbal.environments.minari import recording
from gimbal.environments.recording import write

ROOT = Path(gimbal.__file__).parents[2]
RUN_ELSEWHERE = {
    "from-trl.md",
    "reward.md",
    "method.md",
    "agent.md",
    "terminal.md",
    "environments.md",
    "memory.md",
    "not-learning.md",
}  # test_from_trl, test_pages, test_packages
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in RUN_ELSEWHERE),
    ROOT / "claims" / "README.md",
]
SYNTAX = re.compile(r"(^| )\[|[|{}]|\.\.\.|\bRECIPE\b|\bshow NAME\b")  # of usage lines, which nobody types


def docstrings():
    for file in sorted(Path(gimbal.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                yield str(file.relative_to(ROOT)), text


def commands():
    """(where, command) of the inline code and, on pages, of the lines of code."""
    found = []
    for where, text in docstrings():
        found += [(where, code) for code in re.findall(r"`(gimbal [^`]+)`", text)]
    for page in PAGES:
        text, where = page.read_text(encoding="utf-8"), str(page.relative_to(ROOT))
        lines = re.findall(r"^\s*(?:\$ )?(gimbal .+)$", "".join(re.findall(r"^```.*?^```", text, re.M | re.S)), re.M)
        found += [(where, line) for line in lines] + [(where, code) for code in re.findall(r"`(gimbal [^`]+)`", text)]
    typed = {(where, " ".join(shlex.split(code, comments=True)), code) for where, code in found}
    return sorted((where, code) for where, plain, code in typed if not SYNTAX.search(plain))


COMMANDS_FOUND = commands()
DATA = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """A data set in Minari's layout."""
    place = tmp_path_factory.mktemp("minari")
    data = recording("gimbal/pendulum/random-v0")
    write(replace(data, episodes=data.episodes[:2]), place / "set", "recorded/set-v0")
    write(behaviors.steady(1), place / "own", "recorded/own-v0")
    return place / "set"


@pytest.fixture
def desk(tmp_path, monkeypatch, recorded):
    """The things that the commands name, so that those which read them can."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    shutil.copytree(recorded, tmp_path / "minari" / "D4RL" / "pointmaze" / "umaze-v2")
    for name in ("DIRECTORY", "mine"):
        shutil.copytree(recorded, tmp_path / name)
    shutil.copytree(recorded.parent / "own", tmp_path / "own")
    for name in ("heldout.jsonl", "test.jsonl", "more.jsonl"):
        (tmp_path / name).write_text('{"prompt": "2+2="}\n')
    (tmp_path / "more.csv").write_text("prompt\n3+3=\n")
    for run in ("runs/NAME", "runs/RUN"):
        (tmp_path / run / "model").mkdir(parents=True)
        (tmp_path / run / "recipe.yaml").write_text(config.dump(recipes.load("demo"), "demo"))
    saved = {
        "famo2o": "offline",
        "iql": "base",
        "rad_2_flow": "cloned",
        "world": "imagined",
        "diffusion_world": "drawn",
    }
    for recipe, run in saved.items():
        recipes.load(recipe).policy.load(0).save(tmp_path / "runs" / run / "model")
    (tmp_path / "programs.jsonl").write_text('{"prompt": "1+1=", "completion": "a = 1"}\n')
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1+1="}\n')
    registered = "gymnasium.register('Corridor-v0', entry_point=Corridor)\n"
    (tmp_path / "corridor.py").write_text(re.search(r"```python\n(import gymnasium.*?)```", DATA, re.S)[1] + registered)
    for page in ("agent.md", "method.md"):
        blocks.write_files(blocks.read(page), tmp_path)
    own_update = re.search(
        r"```python\n(from [^`]*class BatchReinforce.*?)```", (ROOT / "docs" / "architecture.md").read_text(), re.S
    )
    (tmp_path / "upd.py").write_text(own_update[1])
    (tmp_path / "mine.py").write_text(
        "".join(
            f"def {name}(prompts, completions, **columns):\n    return [0.0 for _ in prompts]\n"
            for name in ("score", "brevity")
        )
    )
    (tmp_path / "ink.py").write_text(
        "from dataclasses import dataclass\n"
        "from gimbal.rewards.samples import AbstractSampleReward\n\n\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Ink(AbstractSampleReward):\n"
        "    name: str = 'ink'\n\n"
        "    def of_samples(self, x_ND, label_N):\n"
        "        return x_ND.mean(-1)\n"
    )
    (tmp_path / "agent.py").write_text("def solve(base_url, task):\n    return 0.0\n")
    for name in ("PATH", "STUDENT", "TEACHER"):
        (tmp_path / name).mkdir()


def test_directories_of_runs_end_in_the_seed():
    """A run of `gimbal train kuhn` is runs/kuhn-0."""
    for file in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        of_runs = r"(?:\bruns/|gimbal (?:report|doctor|eval|export|serve) )(\w+)(?=[/ \n`])"
        for name in re.findall(of_runs, file.read_text(encoding="utf-8")):
            assert name not in recipes.names(), (file.name, name)


def test_there_are_such_commands():
    assert {"README.md", "src/gimbal/recipes/papers/data/doge.py", "docs/doctor.md"} <= {
        where for where, _ in COMMANDS_FOUND
    }


@pytest.mark.parametrize(("where", "command"), COMMANDS_FOUND)
def test_a_command_in_the_docs_is_taken(where, command, desk, capsys):
    _, name, *words = shlex.split(command, comments=True)
    said = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True).stderr
    assert said == "", "a shell must take it: brackets stand in quotes"
    assert name in (*COMMANDS, "--help")
    if name == "train" and "--replay" not in words:
        assert main(["train", *words, "--print-config"]) == 0, capsys.readouterr().err
    elif name in ("show", "list"):
        assert main([name, *words]) == 0, capsys.readouterr().err
    else:
        assert main([name, "--help"]) == 0
        page = capsys.readouterr().out
        assert [word for word in words if word.startswith("--") and word.partition("=")[0] not in page] == []


@pytest.mark.parametrize("name", sorted(recipes.names()))
def test_an_override_in_a_recipes_docstring_is_one_of_a_recipe(name, desk):
    """Said of this recipe or, in a command for the stage after it, of the one that the command names."""
    text = inspect.getdoc(recipes.function(name)) or ""
    for key, value in re.findall(
        r"([a-z_]+(?:\.[a-z0-9_]+)+)=([^\s`,;:]+?)\.?(?=[\s`,;:]|$)", re.sub("`gimbal [^`]+`", "", text)
    ):
        assert recipes.load(name, {key: config.Text(value)})
