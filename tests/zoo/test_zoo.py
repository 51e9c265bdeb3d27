"""Every family of the zoo from its files, through two steps, to files that transformers itself generates from.

transformers is the judge: its ``generate`` for the sampler, and by the gap between sampler and trainer for both.
"""

import json
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM
from zoo_families import FAMILIES, saved

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import small_run

from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.environments.dataset import Rows
from gimbal.learning.optimization import Optimization
from gimbal.policies.lora import LoRA, merged
from gimbal.policies.token import CausalLM, Sampling, TokenPolicy
from gimbal.runtime.local import run_local

ADAPTED = ("qwen3", "qwen3_moe", "phi3", "gpt2")  # tied embeddings, experts, fused projections, Conv1D
LENGTH = 20  # more than any window of theirs


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    directory = tmp_path_factory.mktemp("zoo")
    return {name: saved(name, directory) for name in FAMILIES}


def tasks(name):
    asked = [f"What is {a} times {a + 2}?" for a in range(2, 6)]
    if not FAMILIES[name].template:
        return Rows(rows=[{"prompt": text} for text in asked])
    return Rows(rows=[{"prompt": [{"role": "user", "content": text}]} for text in asked])


def greedy(policy, asked):
    engine = Native(slots=8, precision="float32").start(policy)
    engine.load(0, policy.weights())
    sampling = Sampling(max_length=LENGTH, temperature=0.0)
    for index in range(len(asked)):
        engine.submit(Request(group=index, task=asked[index], sample=0, sampling=sampling, seed=0))
    rows = {key[0]: item.rollout.decisions for key, item in drained(engine).items()}
    return [rows[i].ids_NL[0, int(rows[i].prompt_N[0]) : int(rows[i].length_N[0])].tolist() for i in sorted(rows)]


def generated(model, policy, asked):
    found = []
    for index in range(len(asked)):
        ids = torch.tensor([policy.encode_task(asked[index])])
        mask = torch.ones_like(ids)
        row = model.generate(ids, attention_mask=mask, max_new_tokens=LENGTH, do_sample=False, pad_token_id=0)
        found.append(row[0, ids.shape[1] :].tolist())
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("name", "lora"), [*((n, False) for n in FAMILIES), *((n, True) for n in ADAPTED)])
def test_trained_saved_reloaded_and_generated_from(name, lora, models, tmp_path, single_thread):
    spec = CausalLM(model=str(models[name]), lora=LoRA(rank=4) if lora else None)
    run = small_run(
        policy=spec,
        tasks=tasks(name),
        sampling=Sampling(max_length=LENGTH),
        optimization=Optimization(learning_rate=1e-2 if lora else 1e-3),
        steps=2,
    )
    run_local(run, tmp_path)
    steps = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in steps] == [1, 2]
    for row in steps:
        assert row["mismatch/logp_diff_max"] < 1e-4, "the sampler's log-probabilities are the trainer's"
        assert row["grad_norm"] > 0

    checkpoint = max((tmp_path / "checkpoints").iterdir()) / "model"
    policy, again = run.policy.at(tmp_path / "model").load(), run.policy.at(checkpoint).load()
    for key, tensor in policy.weights().items():
        assert torch.equal(tensor, again.weights()[key]), key
    before = spec.load().weights()
    assert any(not torch.equal(tensor, before[key]) for key, tensor in policy.weights().items())

    asked = run.tasks
    drawn = greedy(policy, asked)
    if lora:
        plain = AutoModelForCausalLM.from_pretrained(models[name])
        plain.load_state_dict(merged(policy.model))
        whole = CausalLM(model=str(tmp_path / "model")).load()  # base and adapter, merged as they load
        for key, tensor in plain.state_dict().items():
            torch.testing.assert_close(whole.model.state_dict()[key], tensor, rtol=1e-5, atol=1e-6)
    else:
        plain = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert drawn == generated(plain, policy, asked)
    assert max(map(len, drawn)) == LENGTH, "none is as long as was asked: windows have not mattered"


@pytest.mark.parametrize("name", FAMILIES)
def test_a_prompt_is_what_transformers_makes_of_it(name, models):
    family, policy = FAMILIES[name], CausalLM(model=str(models[name])).load()
    assert isinstance(policy, TokenPolicy)
    ids = [policy.encode_task(tasks(name)[0]), policy.encode_task(Rows(rows=[{"prompt": "5 + 6 ="}])[0])]
    bos = policy.tokenizer.convert_tokens_to_ids(family.bos) if family.bos else None
    for one, written in zip(ids, (family.template and "bos_token" in family.template, family.adds_bos), strict=True):
        assert one.count(bos) == int(bool(written)), "the first token stands there once, or not at all"
    assert policy.decode(ids[1]) == "5 + 6 ="
    assert set(policy.end_ids) == {policy.tokenizer.convert_tokens_to_ids(t) for t in (family.eos, *family.ends)}
    assert policy.context == 256
