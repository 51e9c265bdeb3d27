"""The four pages on control: every setting of their tables and their text is accepted as it is typed, and acts."""

import json
import re
import shlex
from pathlib import Path

import blocks
import pytest
from safetensors.torch import load_file

pytest.importorskip("gymnasium")

from gimbal import cli

PAGE = "\n".join(map(blocks.read, ("control.md", "offline.md", "worlds.md", "robust.md")))
# `key=value` and `key` in code, outside of the blocks of commands; k stands for a number.
PROSE = re.sub(r"^```.*?^```", "", PAGE, flags=re.MULTILINE | re.DOTALL)
TYPED = [code for code in re.findall(r"`([^`]+)`", PROSE) if re.fullmatch(r"[a-z_]+(\.[a-z_]+)*=.+", code)]
TABLE = [
    (re.findall(r"`([^`]+)`", setting), re.findall(r"`([^`]+)`", metric))
    for setting, metric in re.findall(
        r"^\| (`(?:store\.|engine\.|max_staleness=)[^|]*) \|([^|\n]*)\|[^|\n]+\|$", PAGE, re.MULTILINE
    )
]
RECIPES = re.findall(r"^\| (`[a-z_0-9`, ]+`) \|", PAGE, re.MULTILINE)
# What a setting needs to act within some steps.
VALUES = {"store.capacity": "=30", "learning_starts": "=150"}
BESIDE = {"max_staleness": ["engine.slots=8"]}
RECIPE = {  # for all others dqn
    "world.ends": "mbpo",
    "store.path": "mbpo",
    "engine.correlation": "sac",
    "update.temperature_learning_rate": "sac",
    "update.subset": "sac",
}
SMALL = ["steps=4", "learning_starts=20", "store.minibatch=8", "policy.hidden=(8,)", "held_out=none", "threads=1"]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def trained(name, recipe, *words):
    """The weights and the metrics of a tiny run with these settings; what is given here counts."""
    keys = {word.partition("=")[0].rpartition(".")[2] for word in words}
    small = [word for word in SMALL if word.partition("=")[0].rpartition(".")[2] not in keys]
    assert cli.main(["train", recipe, *words, *small, "--name", name]) == 0, words
    rows = [json.loads(line) for line in Path(f"runs/{name}/metrics.jsonl").read_text().splitlines()]
    return load_file(f"runs/{name}/model/model.safetensors"), rows


def unlike(one, other):
    return any(one[name].ne(other[name]).any() for name in one)


def test_the_page_has_settings():
    keys = {code.partition("=")[0] for code in TYPED}
    assert {
        "max_staleness",
        "engine.segment",
        "store.update_to_data",
        "store.n",
        "store.preference",
        "world.ends",
        "engine.correlation",
    } <= keys
    assert len(TABLE) == 6 and len(RECIPES) >= 6


def test_every_recipe_of_the_table_is_there():
    from gimbal import recipes

    named = [name for cell in RECIPES for name in re.findall(r"`([^`]+)`", cell)]
    assert set(named) <= set(recipes.names()) and len(named) >= 11


@pytest.mark.slow
def test_the_recipes_that_take_lasting_noise_are_those_it_names():
    from gimbal import recipes
    from gimbal.config import Text

    (said,) = re.findall(
        r"Every off-policy recipe that acts with real actions takes it \((.*?)\)", " ".join(PAGE.split())
    )
    taking = set()
    for name in recipes.names():
        try:
            recipes.load(name, {"engine.correlation": Text("0.9")})
        except (ValueError, ImportError):  # no such setting, a refusal, or a package that is not here
            continue
        taking.add(name)
    assert set(re.findall(r"`(\w+)`", said)) == taking


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["idql", "fql", "famo2o"])
def test_what_plays_recorded_episodes_back_acts_beside_them_as_it_is_typed(desk, single_thread, capsys, recipe):
    pytest.importorskip("h5py")
    (block,) = (text for text in re.findall(r"```\n(.*?)```", PAGE, re.DOTALL) if "train idql 'tasks" in text)
    _, command, _, *words = shlex.split(block)
    words = ["steps=3" if word == "steps=300" else word for word in words]
    beside = ["store.learning_starts=10", "store.minibatch=8", "held_out.tasks.size=2", "--name", "both"]
    assert cli.main([command, recipe, *words, *beside]) == 0, capsys.readouterr().err
    last = json.loads(Path("runs/both/metrics.jsonl").read_text().splitlines()[-1])
    assert last["replay/prior"] == 0.5 and last["replay/moves"] == 20


@pytest.mark.slow
@pytest.mark.parametrize("typed", [*TYPED, *(word for words, _ in TABLE for word in words if "=" not in word)])
def test_a_setting_acts(desk, single_thread, capsys, typed):
    key = typed.partition("=")[0]
    typed = f"{typed}{VALUES.get(key, '')}".replace("=k", "=2").replace("'", "")
    beside, recipe = BESIDE.get(key, []), RECIPE.get(key, "dqn")
    # What the recipe has already would change nothing.
    other = {"engine.segment": ["engine.segment=8"]}.get(key, [])
    before, _ = trained("before", recipe, *beside, *other)
    after, rows = trained("after", recipe, typed, *beside)
    assert unlike(before, after), f"{typed} changes nothing"
    for words, metrics in TABLE:
        if any(word.partition("=")[0] == key for word in words):
            assert all(metric in rows[-1] for metric in metrics)
    if key == "store.update_to_data":
        assert rows[-1]["replay/update_to_data"] == pytest.approx(float(typed.partition("=")[2]), rel=0.05)
    if key == "store.capacity":
        assert rows[-1]["replay/held"] == 30
    if key == "learning_starts":
        assert rows[0]["replay/moves"] == 0 < rows[-1]["replay/moves"]


@pytest.mark.parametrize("code", [code for language, _, code in blocks.blocks(PAGE) if language == "python"])
def test_the_code_runs_as_it_stands(desk, single_thread, code):
    assert "assert " in code
    exec(code, {})
