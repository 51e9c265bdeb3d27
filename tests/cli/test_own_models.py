"""Own models as they are typed: the precision of their weights and of their sampler, and what is said of it."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

from gimbal import cli, config
from gimbal.policies.token import CausalLM

SMALL = ["held_out=none", "steps=1", "prompts_per_step=2", "num_generations=2", "max_length=4", "threads=1"]
DATA = ["tasks=rows.jsonl", "reward=mine.py:score"]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A user's directory with a small model of his own, rows and a reward."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(CausalLM().path, "model")
    Path("rows.jsonl").write_text('{"prompt": "2 + 2 =", "answer": "4"}\n{"prompt": "3 + 4 =", "answer": "7"}\n')
    Path("mine.py").write_text("def score(completions):\n    return [float(len(set(text))) for text in completions]\n")


def trained(capsys, *words):
    """What the command said on stderr, and the run that it saved, by the name of the run."""
    capsys.readouterr()
    assert cli.main(["train", *words, *SMALL]) == 0, capsys.readouterr().err
    saved = config.read_file(Path("runs", words[words.index("--name") + 1], "recipe.yaml"))["run"]
    return capsys.readouterr().err, saved


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_a_small_model_is_sampled_as_near_to_its_weights_as_the_sampler_can(desk, single_thread, capsys, dtype):
    said, saved = trained(capsys, "grpo", "model=model", *DATA, f"policy.dtype={dtype}", "--name", dtype)
    sampler = "bfloat16" if dtype == "bfloat16" else "float32"
    assert (saved["policy"]["dtype"], saved["engine"]["precision"]) == (dtype, sampler)
    (notice,) = [line for line in said.splitlines() if "is sampled in" in line]
    assert f"model is sampled in {sampler}" in notice and "engine.precision=int8" in notice
    # float64 is no precision of the sampler's, and the sentence does not say that it is.
    assert ("the precision of its weights" in notice) == (dtype == sampler) and (dtype == sampler or dtype in notice)
    weights = load_file(f"runs/{dtype}/model/model.safetensors")
    assert {str(x.dtype) for x in weights.values()} == {f"torch.{dtype}"}
    (row,) = [json.loads(line) for line in Path(f"runs/{dtype}/metrics.jsonl").read_text().splitlines()]
    assert row["mismatch/prob_diff"] < 0.05


@pytest.mark.slow
def test_a_precision_that_the_user_typed_stays_and_nothing_is_said(desk, single_thread, capsys):
    for name, given in {"path": "engine.precision=int8", "short": "precision=int8", "part": "engine=Native()"}.items():
        said, saved = trained(capsys, "grpo", "model=model", *DATA, given, "--name", name)
        assert "is sampled in" not in said and saved["engine"]["precision"] == (
            "bfloat16" if name == "part" else "int8"
        )


@pytest.mark.slow
def test_the_model_of_a_gimbal_run_goes_on_as_it_was_sampled(desk, single_thread, capsys):
    """Its last model, that of a checkpoint, and one that was exported; a copy elsewhere is anybody's model."""
    said, saved = trained(capsys, "grpo", *DATA, "--name", "first", "checkpoint_every=1")
    assert saved["engine"]["precision"] == "int8" and "is sampled in" not in said
    assert cli.main(["export", "first", "exported"]) == 0
    shutil.copytree("runs/first/model", "copied")
    for number, model in enumerate(["runs/first/model", "runs/first/checkpoints/step_000001/model", "exported"]):
        said, saved = trained(capsys, "grpo", f"model={model}", *DATA, "--name", f"next-{number}")
        assert saved["engine"]["precision"] == "int8" and "is sampled in" not in said, model
    said, saved = trained(capsys, "grpo", "model=copied", *DATA, "--name", "copied")
    assert saved["engine"]["precision"] == "float32" and "is sampled in float32" in said
