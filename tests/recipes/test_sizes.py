"""A pretrained model under a recipe of the tiny one: what its size asks for, said in a sentence; what the user sets stays."""

import math
import shutil

import pytest

from gimbal import recipes
from gimbal.policies import token
from gimbal.policies.lora import LoRA
from gimbal.policies.token import CausalLM
from gimbal.recipes import sizes


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A directory that counts as a large model from 1 MB on."""
    monkeypatch.setattr(token, "LARGE_BYTES", 1_000_000)
    return str(shutil.copytree(CausalLM().path, tmp_path / "model"))


def loaded(**changes):
    told: list[str] = []
    given = {"tasks": [{"prompt": "2 + 2 ="}], "held_out": None, **changes}
    return recipes.load("grpo", given, told.append), [sentence for sentence in told if "parameters" in sentence]


def test_a_pretrained_model_takes_what_its_size_asks_for_and_is_told_so(model):
    run, told = loaded(model=model)
    assert (run.optimization.learning_rate, run.optimization.checkpointing) == (1e-6, True)
    assert (run.optimization.microbatch_tokens, run.engine.slots) == (16384, 64)
    assert run.sampling.max_length == 256
    (sentence,) = told
    assert "learning_rate=1e-06" in sentence and "max_length=256" in sentence and " GB (" in sentence
    assert (run.policy.mixed_precision == "bf16") == ("mixed_precision=bf16" in sentence)
    assert run.prompts_per_step * run.num_generations == 128


def test_a_mean_over_the_longest_rollout_follows_it(model):
    run = recipes.load("dr_grpo", {"model": model}, lambda sentence: None)
    assert run.aggregation.length == run.sampling.max_length == 256


def test_what_the_user_sets_stays_under_any_of_its_names(model):
    run, (sentence,) = loaded(
        model=model, lr="1e-5", max_completion_length="99", **{"engine.slots": "7", "gradient_checkpointing": "false"}
    )
    assert (run.optimization.learning_rate, run.sampling.max_length, run.engine.slots) == (1e-5, 99, 7)
    assert not run.optimization.checkpointing
    assert not any(name in sentence for name in ("learning_rate", "max_length=", "slots", "checkpointing="))
    coarse, _ = loaded(model=model, **{"policy.dtype": "bfloat16"})
    assert coarse.policy.mixed_precision == "no"
    whole, _ = loaded(policy=CausalLM(model=model))
    assert whole.policy == CausalLM(model=model) and whole.optimization.learning_rate == 1e-6


def test_lora_learns_ten_times_as_fast(model):
    run, (sentence,) = loaded(model=model, **{"policy.lora": LoRA(rank=4)})
    assert run.optimization.learning_rate == 1e-5 and "rates for LoRA" in sentence


def test_the_tiny_model_and_small_ones_keep_the_recipe(model, monkeypatch):
    tiny, told = loaded()
    assert tiny.optimization == recipes.load("grpo", {}, told.append).optimization and not told
    monkeypatch.undo()
    small, told = loaded(model=model)
    assert small.optimization == tiny.optimization and small.sampling == tiny.sampling and not told


def test_a_later_run_from_a_run_keeps_what_that_one_had(model):
    from gimbal.recipes.configure import configured

    run, _ = loaded(model=model, lr="3e-6")
    told: list[str] = []
    again = configured(run, {"model": model, "steps": 3}, told.append)
    assert again.optimization == run.optimization and not told


def test_the_table_covers_every_size_and_grows_more_careful():
    assert sizes.TABLE[-1].parameters == math.inf
    for small, large in zip(sizes.TABLE, sizes.TABLE[1:], strict=False):
        assert small.parameters < large.parameters and small.microbatch_tokens > large.microbatch_tokens


def test_a_model_of_the_hub_counts_as_large(monkeypatch):
    run, _ = loaded(model="somebody/some-model")
    assert run.optimization.microbatch_tokens == 4096 and run.sampling.max_length == 1024


def test_an_own_model_is_sampled_in_its_own_precision_not_in_the_recipes(model, monkeypatch):
    large, _ = loaded(model=model)
    assert large.engine.precision in ("bfloat16", "float32")
    monkeypatch.undo()
    assert loaded()[0].engine.precision == "int8", "gimbal-tiny keeps the recipe's"
    assert loaded(model=model)[0].engine.precision == "float32"
    assert loaded(model=model, **{"policy.dtype": "bfloat16"})[0].engine.precision == "bfloat16"
    assert loaded(model=model, **{"engine.precision": "int8"})[0].engine.precision == "int8"
