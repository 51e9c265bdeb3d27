"""The formula for memory against what a run really holds, tensor by tensor; benchmarks/memory.py holds it against whole processes."""

from dataclasses import replace

import pytest
import torch
from small import small_run
from transformers import AutoTokenizer, Qwen2Config

from gimbal import cli, recipes
from gimbal.engines.native import Native
from gimbal.environments.dataset import Rows
from gimbal.learning.optimization import Optimization
from gimbal.policies.lora import LoRA
from gimbal.policies.token import CausalLM, Sampling
from gimbal.runtime import memory
from gimbal.runtime.local import Trainer
from gimbal.runtime.memory import Shape, predicted, told

SETTINGS = {  # of the policy, of the optimization
    "float32": ({}, {}),
    "mixed, checkpointing": ({"mixed_precision": "bf16"}, {"checkpointing": True, "optimizer_dtype": "bfloat16"}),
    "bfloat16": ({"dtype": "bfloat16"}, {"optimizer": "sgd"}),
    "muon": ({"mixed_precision": "bf16"}, {"optimizer": "muon"}),
    "lora": ({"mixed_precision": "bf16", "lora": LoRA(rank=8)}, {"checkpointing": True}),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """2 M parameters, most of them in the blocks; the vocabulary is the tokenizer's, so that its tables are small."""
    where = tmp_path_factory.mktemp("model")
    sizes = {"hidden_size": 192, "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 6}
    config = Qwen2Config(**sizes, num_key_value_heads=2, vocab_size=103, tie_word_embeddings=True)
    config.save_pretrained(where)
    AutoTokenizer.from_pretrained(CausalLM().path).save_pretrained(where)
    return where


def storages(tensors, known=()):
    """Bytes of what these lie in, each once, but for those that are known."""
    found = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors if x is not None}
    return sum(size for place, size in found.items() if place not in known), set(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_each_part_is_as_large_as_the_formula_says(model, name):
    torch.set_num_threads(1)
    policy, optimization = SETTINGS[name]
    run = small_run(
        policy=replace(CausalLM(model=str(model), fresh=True), **policy),
        optimization=Optimization(learning_rate=1e-6, **optimization),
        engine=Native(slots=8, precision="bfloat16"),
        sampling=Sampling(max_length=24),
        tasks=Rows(rows=[{"prompt": f"{n}="} for n in range(10, 20)]),
    )
    trainer = Trainer(run)
    trainer.begin()
    learner, saved, kept = trainer.learner, [], []
    weights = list(learner.policy.parameters())
    own, places = storages(weights)

    def pack(x):
        kept.append(x)
        return x

    descend = learner._descend

    def descended(loss):
        saved.append(storages(kept, places)[0])
        kept.clear()
        descend(loss)
        saved.append(storages(w.grad for w in weights)[0])

    learner._descend = descended
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        trainer.advance()
    prompt = max(len(trainer.policy.encode_task(run.tasks[n])) for n in range(len(run.tasks)))
    expected = predicted(run, Shape.of(str(model)), prompt)
    state = learner.models.optimizers["policy"].state.values()
    moments = storages(x for one in state for x in one.values() if isinstance(x, torch.Tensor) and x.ndim)[0]
    sampler = storages(trainer.engine.copy.module.state_dict().values())[0]
    cache = storages([*trainer.engine.slots.keys, *trainer.engine.slots.values])[0]
    for part, size in {"weights": own, "gradients": saved[1], "optimizer": moments, "sampler": sampler}.items():
        assert size == pytest.approx(expected[part], rel=0.02), part
    assert 0.45 * expected["cache"] < cache <= expected["cache"]
    # Of a pass: what is there as its gradient begins. The tables of logits are not recomputed in a vocabulary as small as this one.
    tables, inputs = 4 * 5 * 8 * 24 * 103, 8 * 27 * 4 * 192 * 4
    least = (
        0.4 * inputs if optimization.get("checkpointing") else 0.7 * expected["activations"]
    )  # Qwen2 has fewer norms than others
    assert least < saved[0] < expected["activations"] + tables
    assert told(expected).startswith(f"{sum(expected.values()) / 1e9:.1f} GB (")


def test_a_run_is_told_what_its_machine_or_its_model_has_no_room_for(monkeypatch, capsys):
    """Before it is started, and by the formula."""
    monkeypatch.setattr(memory, "room", lambda: (8e9, "this machine"))
    run = recipes.load("grpo")
    assert not [*memory.too_large(run), *memory.too_long(run)]
    (said,) = memory.too_large(replace(run, engine=Native(slots=60_000), sampling=Sampling(max_length=200)))
    assert said.endswith(
        "but this machine has 8.0 GB: lower engine.slots or sampling.max_length (docs/memory.md has the formula and more options)"
    )
    assert said.startswith("this run may need 70") and "(cache 70" in said
    context = Shape.of(run.policy.path).context
    (said,) = memory.too_long(replace(run, sampling=Sampling(max_length=context)))
    assert f"supports {context} tokens, prompt included; sampling.max_length={context // 2} leaves" in said
    assert cli.main(["train", "grpo", "--dry-run", f"sampling.max_length={context}", "engine.slots=60000"]) == 0
    err = capsys.readouterr().err
    assert "leaves no room for a prompt" in err and "may need" in err
    with pytest.raises(ValueError, match=r"max_length is 1,000,000,000; it must be from 1 to 10,000,000 decisions"):
        Sampling(max_length=10**9)
