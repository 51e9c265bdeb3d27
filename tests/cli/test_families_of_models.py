"""Models of each family, by name or directory, where a command takes one."""

import re
import shutil

import pytest
import torch

from gimbal import api, recipes
from gimbal.cli import main
from gimbal.config.parts import Text
from gimbal.engines.base import Request, drained
from gimbal.policies.masked import MaskedLM
from gimbal.policies.token import CausalLM
from gimbal.recipes.shipped import SHIPPED
from gimbal.runtime import policies


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_each_model_in_the_package_is_evaluated_by_its_name(name, tmp_path):
    recipe = SHIPPED[name]
    if recipe in ("flow_grpo", "ddpo"):
        pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")
    run = api.to_evaluate(name, recipe, tmp_path)
    assert run.policy.model == name and api.version(name, tmp_path) == 0
    policies.check_files(run)


def test_a_model_of_another_family_than_the_recipe_s_is_refused_with_one_that_fits(tmp_path):
    with pytest.raises(ValueError, match=r"gimbal-sudoku is not a model that demo can load.*--recipe masked_grpo"):
        api.to_evaluate("gimbal-sudoku", "demo", tmp_path)
    with pytest.raises(ValueError, match=r"gimbal-tiny is not a model that flow_grpo can load.*--recipe demo"):
        api.to_evaluate("gimbal-tiny", "flow_grpo", tmp_path)


@pytest.mark.parametrize("index", [True, False])
def test_a_directory_of_diffusers_is_evaluated(index, tmp_path):
    pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")
    directory = shutil.copytree(recipes.load("flow_grpo").policy.path, tmp_path / "mine")
    (directory / "model_index.json").unlink(missing_ok=True)
    if index:
        (directory / "model_index.json").write_text("{}")
    assert api.to_evaluate(str(directory), "flow_grpo", tmp_path / "runs").policy.path == str(directory)


def test_a_directory_of_diffusers_is_refused_by_recipes_of_words_with_one_that_trains_it():
    flow, diffused = (str(recipes.load(name).policy.path) for name in ("flow_grpo", "ddpo"))
    with pytest.raises(ValueError, match=rf"transformer/ and scheduler/.*gimbal train flow_grpo policy.model={flow}$"):
        CausalLM(model=flow).check_files()
    with pytest.raises(ValueError, match=rf"gimbal train ddpo policy.model={diffused}$"):
        recipes.load("masked_grpo", {"model": Text(diffused), "tasks.labels": Text("[0]")})


@pytest.mark.parametrize("model", ["/nowhere", "./nowhere", ""])
def test_a_missing_model_is_refused_with_the_one_of_its_kind(model):
    with pytest.raises(ValueError, match=r"give policy.model=DIRECTORY, or gimbal-sudoku$"):
        policies.check_files(recipes.load("masked_grpo", {"policy.model": Text(model)}))
    with pytest.raises(ValueError, match=r"give policy.model=DIRECTORY, or gimbal-tiny$"):
        policies.check_files(recipes.load("grpo", {"policy.model": Text(model)}))


def test_a_name_that_the_hub_does_not_have_is_refused_with_the_one_of_its_kind(monkeypatch):
    import huggingface_hub

    def nothing(self, name, **settings):
        raise OSError("offline")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", nothing)
    with pytest.raises(ValueError, match=r"no model directory gimbal-tiny,.*or gimbal-sudoku$"):
        recipes.load("masked_grpo", {"model": Text("gimbal-tiny")}).policy.load()


def test_a_tokenizer_without_a_mask_is_named_by_its_directory(tmp_path):
    from transformers import AutoTokenizer

    directory = shutil.copytree(MaskedLM().path, tmp_path / "mine")
    for file in directory.glob("tokenizer*"):
        file.unlink()
    AutoTokenizer.from_pretrained(CausalLM().path).save_pretrained(directory)
    with pytest.raises(ValueError, match=f"the tokenizer of {directory} has no mask token.*or gimbal-sudoku"):
        MaskedLM(model=str(directory)).load()


def test_the_line_before_a_run_counts_choices_of_cells_as_decisions():
    """Sampled, not only said: a group of the recipe's has more decisions than cells, and none more than the line says."""
    assert "(at most 1,024 decisions)" in api.statement(recipes.load("masked_grpo"))
    run = recipes.load("masked_grpo", {"sampling.spread": Text("0.1")})
    assert "(at most 2,048 decisions)" in api.statement(run)
    with torch.no_grad():
        engine = run.engine.start(run.policy.load())
        engine.load(0, run.policy.load().weights())
        for sample in range(4):
            engine.submit(Request(group=0, task=run.tasks[0], sample=sample, sampling=run.sampling, seed=0))
        lengths = [one.rollout.length for one in drained(engine).values()]
    assert 16 < max(lengths) <= 32


TYPED = [
    (["flow_grpo", "policy.guidance=3"], r"policy.guidance=3 pulls towards the class .*set policy.guidance=1"),
    (["flow_grpo", "policy.guidance=1e30"], r"policy.guidance is 1e\+30; it must be from -100 to 100"),
    (["dance_grpo", "sampling.window=50"], r"sampling.window is 50, .*set sampling.window=9, or 0"),
    (["ddpo", "sampling.max_length=2000"], r"trained on 1000 noise levels .*sampling.max_length=1000 or less"),
    (
        ["flow_grpo", "reward=mine.py:texts"],
        r"reward texts scores texts .*the picture is rollout.decisions.sample_ND\[0\]",
    ),
    (
        ["shapes", "policy.model=gimbal-digits-ddim"],
        r"labels asks for class 1\d, and gimbal-digits-ddim has classes 0 to 9: set",
    ),
    (
        ["shapes", "rewards=[DigitClass()]"],
        r"rewards of digits look at samples of 8x8 pixels .*768 numbers: set reward=",
    ),
    (["shapes", 'rewards=[ShapeAttributes(only=["color"])]'], r"only.*(shape, colour, size|'shape', 'colour')"),
    (["diffusion_nft", "sampling.max_length=4", "update.draws=8"], r"set update.draws=4, or sampling.max_length=8"),
]


@pytest.mark.parametrize(("typed", "said"), TYPED, ids=[" ".join(typed) for typed, _ in TYPED])
def test_what_means_nothing_to_pictures_is_refused_as_it_is_typed(typed, said, tmp_path, monkeypatch, capsys):
    pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "def texts(prompts, completions, **columns):\n    return [0.0 for _ in completions]\n"
    )
    assert main(["train", *typed]) == 2
    told = capsys.readouterr().err
    assert re.search(said, " ".join(told.split())), told
    assert "Traceback" not in told and not list(tmp_path.glob("runs/*"))
