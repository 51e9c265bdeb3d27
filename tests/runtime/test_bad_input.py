"""What cannot work ends in one clear sentence, and nothing that was trained is lost."""

import json
import math
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parent))
from small import Digits, read_once, small_run

from gimbal import recipes
from gimbal.advantages import DiscrepancyPenalty, GroupCentered, Whitened
from gimbal.config import Text
from gimbal.controllers import Lagrangian
from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.environments.dataset import Rows
from gimbal.learning.proximal.behavior import Behavior
from gimbal.objectives import ClippedRatio, Reinforce, TruncatedWeight, ValueLoss
from gimbal.policies.token import CausalLM, Sampling
from gimbal.records import Group, Task
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.function import Function
from gimbal.rewards.isolation import RewardError
from gimbal.runtime import checkpoint
from gimbal.runtime.compose import check
from gimbal.runtime.local import run_local
from gimbal.sandbox.worker import Worker


@dataclass(frozen=True, kw_only=True)
class Never(AbstractReward):
    """No answer is ever right."""

    name: str = "never"

    def __call__(self, group: Group) -> list[float | None]:
        return [0.0 for _ in group.rollouts]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"anchor": Behavior(), "correction": TruncatedWeight()}, "both consume the discrepancy ratio"),
        ({"regularisers": (ClippedRatio(),)}, "both consume the update ratio"),
        ({"regularisers": (ValueLoss(),)}, "there is no critic"),
        ({"num_generations": 1}, "num_generations is 1"),
        ({"sampling": Sampling(top_p=0.9)}, "full support"),
        ({"shaping": (DiscrepancyPenalty(), Whitened())}, "undo its signs"),
        ({"controllers": {"shaping.0.strength": Lagrangian()}}, "has no '0'"),
        ({"controllers": {"objective": Lagrangian()}}, "not a number"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes, reason):
    with pytest.raises(ValueError, match=reason):
        check(small_run(**changes))


def test_what_is_doubtful_is_only_warned_of():
    assert any("corrects for the sampler" in sentence for sentence in check(small_run(max_staleness=1)))
    assert check(small_run(advantage=GroupCentered(), objective=Reinforce())) == []


def test_an_all_failing_task_set_stops_with_advice(single_thread, tmp_path):
    run = small_run(rewards=(Never(),), filters=(ZeroVariance(),), max_empty_batches=3)
    with pytest.raises(ValueError, match=r"the last 6 groups were all dropped.*zero_variance.*too hard"):
        run_local(run, tmp_path / "run")


def test_a_reward_that_scores_nothing_is_named(single_thread, tmp_path):
    script = tmp_path / "mine.py"
    script.write_text("def nones(completions, **columns):\n    return [None] * len(completions)\n")
    run = small_run(rewards=(Function(function=f"{script}:nones"),), max_empty_batches=3)
    with pytest.raises(
        ValueError, match=r"in all: 6 unscored.*The reward nones returned None.* of 6 of them"
    ) as refused:
        run_local(run, tmp_path / "run")
    assert "too hard" not in str(refused.value)


def test_a_reward_that_breaks_loses_nothing(single_thread, tmp_path):
    """It raises from its 21st call on; fixed, the run continues to the bits of a run whose reward never broke."""
    source = """
calls = []
def digits(prompts, completions, **columns):
    calls.append(prompts)
    if len(calls) > LIMIT:
        raise RuntimeError("the answer key is gone")
    return [sum(c.isdigit() for c in text) / max(1, len(text)) for text in completions]
"""
    script = tmp_path / "mine.py"
    broken = small_run(rewards=(Function(function=f"{script}:digits"),), max_staleness=1, steps=6, checkpoint_every=100)
    script.write_text(source.replace("LIMIT", "7"))
    with pytest.raises(RewardError, match="the answer key is gone"):
        run_local(broken, tmp_path / "run")
    assert checkpoint.newest(tmp_path / "run") is not None
    script.write_text(source.replace("LIMIT", "10**9"))
    run_local(broken, tmp_path / "run", resume=True)
    whole = replace(broken, rewards=(Digits(),))
    run_local(whole, tmp_path / "whole")
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert weights[0] == weights[1]


def test_a_missing_and_a_malformed_model_directory(tmp_path):
    with pytest.raises(ValueError, match="no model directory"):
        CausalLM(model=str(tmp_path / "absent")).load()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"no config\.json"):
        CausalLM(model=str(tmp_path / "empty")).load()
    (tmp_path / "empty" / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="has no tokenizer"):
        CausalLM(model=str(tmp_path / "empty")).load()
    (tmp_path / "empty" / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="cannot be loaded"):
        CausalLM(model=str(tmp_path / "empty")).load()
    shutil.copytree(CausalLM().path, tmp_path / "cut")
    (tmp_path / "cut" / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(ValueError, match="cut cannot be loaded"):
        CausalLM(model=str(tmp_path / "cut")).load()


@pytest.mark.parametrize(
    ("config", "spoil", "sentence"),
    [
        (
            {"num_hidden_layers": 6, "layer_types": ["full_attention"] * 6},
            None,
            r"no weights for model\.layers\.5\.\S+, .* and 8 more",
        ),
        (
            {"num_hidden_layers": 4, "layer_types": ["full_attention"] * 4},
            None,
            r"no place for model\.layers\.4\.\S+, .* and 8 more",
        ),
        (
            {"intermediate_size": 392},
            None,
            r"model\.layers\.0\.mlp\.down_proj\.weight is \[128, 384\] in the file and \[128, 392\]",
        ),
        ({}, "model.norm.weight", r"not all finite numbers: model\.norm\.weight$"),
    ],
)
def test_weights_that_are_not_those_of_the_config(tmp_path, capfd, config, spoil, sentence):
    """transformers draws what is missing at random, and training would continue from there."""
    own = Path(shutil.copytree(CausalLM().path, tmp_path / "own"))
    described = json.loads((own / "config.json").read_text())
    (own / "config.json").write_text(json.dumps(described | config))
    if spoil:
        weights = load_file(own / "model.safetensors")
        weights[spoil][0] = torch.nan
        save_file(weights, own / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=sentence):
        CausalLM(model=str(own)).load()
    assert not capfd.readouterr().err


def test_coarse_weights_are_warned_of_with_the_figure():
    (said,) = [x for x in check(small_run(policy=CausalLM(dtype="bfloat16"))) if "dtype" in x]
    assert "below about 1/256 of a weight are lost" in said and "above 0.26 hardly move" in said
    assert not any("dtype" in x for x in check(small_run(policy=CausalLM())))
    for dtype in ("bf16", "float8"):
        with pytest.raises(ValueError, match=f"policy.dtype is .?{dtype}.*float32, bfloat16"):
            recipes.load("grpo", {"policy.dtype": Text(dtype)})


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("advantage.eps", "-1", "eps of GroupNormalized is -1.*from 0 to 1"),
        ("advantage.eps", "inf", "eps of GroupNormalized is inf"),
        ("advantage.ddof", "-1", "ddof of GroupNormalized is -1"),
        ("advantage.ddof", "4", "ddof of GroupNormalized is 4"),
        ("rewards.0.weight", "inf", "the weight of ReasoningScore is inf"),
        ("rewards.0.weight", "1e20", "the weight of ReasoningScore is 1e.20"),
        ("learning_rate", "99999999999999999999", "learning_rate is 1e.20; it must be a number from 0, below 1000"),
        ("optimization.weight_decay", "inf", "weight_decay is inf"),
        ("optimization.epsilon", "inf", "epsilon is inf"),
    ],
)
def test_numbers_that_would_turn_a_run_into_something_else(key, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        check(recipes.load("grpo", {key: Text(value)}))


def test_limits_that_no_kernel_takes():
    for limit in ("memory_gb", "timeout"):
        with pytest.raises(ValueError, match=f"{limit} of x is inf; it must be a number of"):
            Worker("x", lambda: (bool, []), **{"timeout": 1.0, "memory_gb": 1.0, limit: math.inf}, network=False)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"prompt_ids": [5, 103]}, "the token 103; this model knows 0 to 102"),
        ({"prompt_ids": [5, -1]}, "the token -1"),
        ({"prompt_ids": [5, "a"]}, r"prompt_ids of task t is \[5, 'a'\]; it must be a list of integers"),
        ({"prompt_ids": 5}, "prompt_ids of task t is 5; it must be a list of integers"),
        ({"messages": 5}, "messages of task t is 5; it must be a list of messages"),
        ({"messages": [{"role": "user"}]}, "it must be a list of messages with role and content"),
    ],
)
def test_columns_that_are_no_prompts(columns, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_once().encode_task(Task(id="t", columns=columns))


def test_a_prompt_that_the_model_cannot_hold(tmp_path):
    shutil.copytree(CausalLM().path, tmp_path / "mute", ignore=shutil.ignore_patterns("tokenizer*"))
    with pytest.raises(
        ValueError, match=r"mute has no tokenizer; save it next to the weights: tokenizer\.save_pretrained"
    ):
        CausalLM(model=str(tmp_path / "mute")).load()
    (tmp_path / "mute" / "tokenizer_config.json").write_text("{}")
    for model, prompt, reason in (
        ("gimbal-tiny", "1" * 513, "the prompt of task t has 513 tokens; this model holds at most 512"),
        ("gimbal-tiny", "", "has 0 tokens; its text is empty"),
        (str(tmp_path / "mute"), "1 + 1", "or the model has no tokenizer files"),
    ):
        with pytest.raises(ValueError, match=reason):
            CausalLM(model=model).load().encode_task(Task(id="t", prompt=prompt))


def test_the_models_context_is_what_its_config_says():
    """Many tokenizers say 1e30. Text that is far too long is refused before it is encoded, which may take half a minute."""
    policy = CausalLM().load()
    policy.tokenizer.model_max_length = 10**30
    encoded, encode = [], policy.tokenizer.encode
    policy.tokenizer.encode = lambda text, **kind: (encoded.append(len(text)), encode(text, **kind))[1]
    with pytest.raises(ValueError, match="the prompt of task t has 513 tokens; this model holds at most 512"):
        policy.encode_task(Task(id="t", prompt="1" * 513))
    with pytest.raises(ValueError, match="the prompt of task t has 1,000,000 characters; this model holds at most 512"):
        policy.encode_task(Task(id="t", prompt="1" * 1_000_000))
    assert encoded == [513]
    assert not policy.accepts(Task(id="t", prompt="1 + 1"), 64) and encoded == [513], "it fits by its bytes alone"
    assert not policy.accepts(Task(id="t", prompt="1" * 448), 64)
    assert "has 449 tokens, and with sampling.max_length=64 decisions it passes the 512" in policy.accepts(
        Task(id="t", prompt="1" * 449), 64
    )


def test_a_prompt_that_the_model_cannot_hold_is_refused_before_the_first_step(single_thread, tmp_path):
    rows = [{"prompt": "1 + 1 ="}, {"prompt": "1" * 600}]
    with pytest.raises(ValueError, match="the prompt of task row:1 has 600 tokens"):
        run_local(small_run(tasks=Rows(rows=rows)), tmp_path / "run")
    assert not list((tmp_path / "run").iterdir())


def test_a_model_that_no_directory_and_no_hub_has_ends_in_one_sentence(monkeypatch):
    """Asked once, with a time limit: transformers would try for a minute."""
    asked = []

    def away(self, name, timeout):
        asked.append((name, timeout))
        raise ConnectionError("Name or service\nnot known. Use `repo_type` if needed.")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", away)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda name, file: None)
    with pytest.raises(
        ValueError, match=r"no model directory nowhere, and .*\(Name or service not known\); give policy"
    ):
        CausalLM(model="nowhere").load()
    assert asked == [("nowhere", 10.0)]
