"""Models out of a run: the last, the best, that of a step; merged, and with a card of what was measured."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

for room in ("runtime", "zoo"):
    sys.path.insert(0, str(Path(__file__).parents[1] / room))
from small import rows, small_run
from zoo_families import saved

from gimbal import config
from gimbal.cli import main
from gimbal.learning.optimization import Optimization
from gimbal.policies.lora import LoRA, merged
from gimbal.policies.token import CausalLM, Sampling
from gimbal.runtime import best, directories
from gimbal.runtime.local import run_local
from gimbal.runtime.run import HeldOut

QUICK_FILE = Path(__file__).parent / "quick_recipe.py"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("export")
    run = small_run(
        policy=CausalLM(model=str(saved("qwen2", place)), lora=LoRA(rank=4)),
        optimization=Optimization(learning_rate=3e-2),
        sampling=Sampling(max_length=8),
        num_generations=8,
        steps=5,
        checkpoint_every=1,
        keep_checkpoints=1,
        keep_every=2,
    )
    run = config.override(run, {"held_out": HeldOut(tasks=rows(12), samples=2, every=1, save_best="score")})
    directory = directories.create(run, "mine", "run", place)
    run_local(run, directory)
    return run, directory


def exported(trained, target, *words):
    assert main(["export", str(trained[1]), str(target), *words]) == 0
    return AutoModelForCausalLM.from_pretrained(target).state_dict()


def adapted(run, model):
    return merged(run.policy.at(model).load().model)


@pytest.mark.slow
def test_the_best_model_is_that_of_the_best_evaluation(trained):
    _run, directory = trained
    steps = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    before = json.loads((directory / "summary.json").read_text())["before"]["eval/score"]
    scores = {0: before} | {row["step"]: row["eval/score"] for row in steps}
    found = json.loads((directory / "best" / best.EVALUATION).read_text())
    assert found["value"] == max(scores.values()) == scores[found["step"]] == found["figures"]["eval/score"] > before
    assert [path.name for path in sorted((directory / "checkpoints").iterdir())] == [
        "step_000002",
        "step_000004",
        "step_000005",
    ]


@pytest.mark.slow
def test_exported_as_transformers_and_vllm_take_it(trained, tmp_path, capsys):
    run, directory = trained
    last, early, top = (
        exported(trained, tmp_path / name, *words)
        for name, words in (("last", ()), ("early", ("--step", "2")), ("top", ("--best",)))
    )
    for held, place in ((last, "model"), (early, "checkpoints/step_000002/model"), (top, "best")):
        for name, tensor in adapted(run, directory / place).items():
            torch.testing.assert_close(held[name], tensor, rtol=1e-5, atol=1e-6)
    assert not all(torch.equal(last[name], early[name]) for name in last)
    assert AutoTokenizer.from_pretrained(tmp_path / "last").chat_template
    half = AutoModelForCausalLM.from_pretrained(tmp_path / "last").generation_config
    assert half.eos_token_id == [2, 0], "the ends of a turn travel with it"
    assert main(["export", str(directory), str(tmp_path / "half"), "--dtype", "bfloat16"]) == 0
    halved = AutoModelForCausalLM.from_pretrained(tmp_path / "half").state_dict()
    assert all(torch.equal(halved[name], tensor.bfloat16()) for name, tensor in last.items())
    assert main(["export", str(directory), str(tmp_path / "adapter"), "--adapter"]) == 0
    assert (tmp_path / "adapter" / "adapter_config.json").is_file()

    card = (tmp_path / "early" / "README.md").read_text()
    row = json.loads((directory / "metrics.jsonl").read_text().splitlines()[1])
    summary = json.loads((directory / "summary.json").read_text())
    first, then = summary["before"]["eval/score"], row["eval/score"]
    assert f"| {first:.3f} | {then:.3f} |" in card and "eval/" not in card.partition("## Recipe")[0]
    assert "AutoModelForCausalLM" in card and "| base model |" in card
    assert "step 2 of 5, LoRA adapter merged in |" in card and "learning_rate: 0.03" in card
    assert "base_model" not in card, "a directory of this machine is no model of the hub"
    last_card = (tmp_path / "last" / "README.md").read_text()
    assert f"| {summary['after']['eval/score']:.3f} |" in last_card


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--step", "3"), "--step is 3, but .* has checkpoints only for steps 2, 4, 5"),
        (("--step", "2", "--best"), "--step and --best name different models"),
        (("--dtype", "int8"), "--dtype is int8; choose from float64, float32, bfloat16, float16"),
        (("--adapter", "--dtype", "float32"), "drop --dtype"),
        (("lr=1",), "takes no key lr"),
    ],
)
def test_refusals(trained, words, sentence, capsys, tmp_path):
    import re

    assert main(["export", str(trained[1]), str(tmp_path / "out"), *words]) == 2
    assert re.search(sentence, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()
    assert main(["export", str(trained[1]), str(tmp_path.parent)]) == 2
    assert "already exists and is not empty" in capsys.readouterr().err


def test_ties_go_to_the_earlier_model_and_unknown_figures_are_refused():
    held_out, totals = HeldOut(tasks=small_run().tasks, every=1, save_best="score"), {}
    assert best.improved(held_out, 0, {"eval/score": 0.5}, totals) is None
    assert best.improved(held_out, 1, {"eval/score": 0.5}, totals) is None
    assert best.improved(held_out, 2, {"eval/score": float("nan")}, totals) is None
    assert best.improved(held_out, 3, {"eval/score": 0.6, "eval/length": 3.0}, totals) is not None
    assert totals["best"] == {"step": 3, "metric": "eval/score", "value": 0.6}
    for wrong, sentence in (("lost", "it must be none or one of score"), ("score", "held_out.every=10")):
        with pytest.raises(ValueError, match=sentence):
            HeldOut(tasks=small_run().tasks, save_best=wrong)


@pytest.mark.parametrize(
    ("figure", "best_step"), [("data/coverage", 2), ("data/distance", 3), ("loss", 3), ("pass@1", 2)]
)
def test_the_best_evaluation_is_that_of_the_least_distance_or_loss_and_else_of_the_most(figure, best_step):
    held_out, totals = HeldOut(tasks=small_run().tasks, every=1, save_best=figure), {}
    for step, value in enumerate((0.5, 0.5, 0.7, 0.2)):
        best.improved(held_out, step, {f"eval/{figure}": value}, totals)
    assert totals["best"]["step"] == best_step
    with pytest.raises(
        ValueError, match=f"save_best is {figure}, but this run's evaluation has no such metric: it has score"
    ):
        best.improved(held_out, 4, {"eval/score": 0.5}, totals)


MIXTURE = '{"PLACE/a.jsonl": 0.7, "PLACE/b.jsonl": 0.3}'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tasks", "told"), [("PLACE/a.jsonl", "Dataset `a.jsonl`"), (MIXTURE, "Dataset `a.jsonl`, Dataset `b.jsonl`")]
)
def test_card_and_recipe_name_the_data_and_no_place_of_this_machine(tmp_path, monkeypatch, capsys, tasks, told):
    """Typed with absolute paths everywhere; the recipe trains again where files of these names are."""
    place = tmp_path / "me"
    shutil.copytree(CausalLM().path, place / "my model")
    shutil.copy(QUICK_FILE, place)
    (place / "mine.py").write_text(
        "def score(completions):\n    return [float(len(set(text))) for text in completions]\n"
    )
    for name in "ab":
        lines = [json.dumps({"prompt": f"{name} {n} + 1 =", "answer": str(n)}) for n in range(8)]
        (place / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    recipe = f"{place}/quick_recipe.py:quick"
    words = [f"model={place}/my model", f"reward={place}/mine.py:score", f"tasks={tasks.replace('PLACE', str(place))}"]
    assert main(["train", recipe, *words, "held_out=0.25", "steps=1", "threads=1", "--name", "x"]) == 0
    assert main(["export", "x", "out"]) == 0
    card, saved = (Path("out", name).read_text() for name in ("README.md", "recipe.yaml"))
    assert f"| data | {told} |" in card and "| base model | `my model` |" in card and "| reward | score |" in card
    assert "| method | recipe `quick_recipe.py:quick` |" in card and saved in card and "mine.py:score" in saved
    assert "eval/" not in card.partition("## Recipe")[0] and "| held-out tasks | before training | this model |" in card
    for file in Path("out").iterdir():
        for private in (str(tmp_path), str(Path.home()) + "/", str(Path(__file__).parents[2])):
            assert private.encode() not in file.read_bytes(), (file, private)
    monkeypatch.chdir(place)
    capsys.readouterr()
    assert main(["train", "../out/recipe.yaml", "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("../out/recipe.yaml: ") and "Split" in saved


def test_absolute_paths_are_cut_to_their_last_part(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/alice")
    (tmp_path / "a b").mkdir()
    for text, left in (
        (f"{tmp_path}/a b:score", "a b:score"),
        ("/scratch/alice/mine.py:recipe", "mine.py:recipe"),  # a directory of another machine
        ("/gpfs/alice/a.jsonl*0.7,/gpfs/alice/b.jsonl*0.3", "a.jsonl*0.7,b.jsonl*0.3"),
        ("python /srv/secret/agent.py --root=/home/alice/x --port 1", "python agent.py --root=x --port 1"),
        ("ls /home/alice && cat 'file:///home/alice/x.jsonl'", "ls ~ && cat 'x.jsonl'"),
        ("/no-such-place/(.*)/", "/no-such-place/(.*)/"),
        ("https://host/home/page a/tmp/b /tmpfile", "https://host/home/page a/tmp/b /tmpfile"),
        ("openai/gsm8k", "openai/gsm8k"),
        ("/", "/"),
    ):
        assert config.without_places(text) == left
