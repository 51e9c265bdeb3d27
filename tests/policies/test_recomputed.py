"""What saves memory in the learner changes nothing else: chunks of logits, activations that are computed again."""

import pytest
import torch
from peft import LoraConfig
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

from gimbal.policies import logits
from gimbal.policies.token import TokenPolicy, Tokens

SMALL = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
GROUPED = {**SMALL, "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64}
MODELS = {
    "gpt2": {"vocab_size": 50, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64},  # with dropout, as it ships
    "llama": GROUPED,
    "qwen2": {**GROUPED, "tie_word_embeddings": True},
    "qwen3": {**GROUPED, "head_dim": 8},
    "gemma3_text": {**GROUPED, "head_dim": 8, "sliding_window": 32},
}


def policy(kind="qwen2", lora=False, **changes):
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**MODELS[kind], **changes})).eval()
    if lora:
        made.add_adapter(LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False), adapter_name="default")
    return TokenPolicy(made.eval(), None)


def decisions(rows=3, prompt=4, length=9):
    ids = torch.randint(1, 50, (rows, prompt + length), generator=torch.Generator().manual_seed(1))
    return Tokens(
        ids_NL=ids,
        prompt_N=torch.full((rows,), prompt),
        length_N=torch.tensor([prompt + length, prompt + 5, prompt + 1]),
    )


def gradients(learns, columns=(), **settings):
    """Loss, gradients; the loss weighs every decision otherwise, and every column that is asked for."""
    learns.zero_grad()
    found = learns.evaluate(decisions(), temperature=0.7, columns=columns, **settings)
    tables = [found.logprob_NS, *found.columns.values()]
    loss = sum((x * torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view(x.shape)).sum() for x in tables)
    loss.backward()
    return loss.detach(), {n: p.grad for n, p in learns.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_checkpointing_recomputes_each_block_once_and_gives_the_same_bits(kind, lora):
    learns, calls = policy(kind, lora), []
    assert learns.shares, "tried before its layers are counted"
    stack = next(m for m in learns.modules() if isinstance(m, nn.ModuleList) and len(m) == 3)
    # Of a layer within each block: a block's own hooks stay outside the checkpoint.
    for number, block in enumerate(stack):
        next(block.children()).register_forward_hook(lambda *_, number=number: calls.append(number))
    plain = gradients(learns)
    assert calls == [0, 1, 2]
    again = gradients(learns, checkpointing=True)
    assert calls == [0, 1, 2, 0, 1, 2, 2, 1, 0]
    assert torch.equal(plain[0], again[0])
    assert plain[1].keys() == again[1].keys() and plain[1]
    assert all(torch.equal(g, again[1][n]) for n, g in plain[1].items() if g is not None)
    assert not any(module.training for block in stack for module in block.modules() if module is not block)


@pytest.mark.parametrize("columns", [(), ("entropy_NS",), ("logprob_NSV", "entropy_NS", "hidden_NSH")])
@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False}])
def test_chunks_of_logits_are_all_of_them(monkeypatch, columns, changes):
    learns = policy(**changes)
    whole = gradients(learns, columns)
    monkeypatch.setattr(logits, "rows", lambda weight: 15)  # there are 15 decisions
    covered = gradients(learns, columns)
    assert torch.equal(whole[0], covered[0]) and all(torch.equal(g, covered[1][n]) for n, g in whole[1].items())
    monkeypatch.setattr(logits, "rows", lambda weight: 4)
    loss, chunked = gradients(learns, columns)
    torch.testing.assert_close(loss, whole[0], rtol=1e-5, atol=1e-5)
    for name, gradient in whole[1].items():
        torch.testing.assert_close(chunked[name], gradient, rtol=1e-4, atol=1e-5)
    assert any(not torch.equal(g, chunked[n]) for n, g in whole[1].items())  # it did go another way


def test_chunks_with_a_frozen_or_an_adapted_output_layer(monkeypatch):
    frozen, adapted = policy(lora=True), policy(tie_word_embeddings=False)
    adapted.model.add_adapter(
        LoraConfig(r=2, target_modules=["lm_head"], init_lora_weights=False), adapter_name="default"
    )
    for learns in (frozen, adapted):
        whole = gradients(learns, ("entropy_NS",))
        with monkeypatch.context() as patched:
            patched.setattr(logits, "rows", lambda weight: 4)
            chunked = gradients(learns, ("entropy_NS",))
        assert whole[1]
        for name, gradient in whole[1].items():
            torch.testing.assert_close(chunked[1][name], gradient, rtol=1e-4, atol=1e-5)


class Largest(TorchDispatchMode):
    """The most numbers in a tensor that was made within, by its last two sizes."""

    def __init__(self):
        super().__init__()
        self.tables = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, torch.Tensor) and x.ndim == 2 and x.shape[-1] == 50 and x.shape[0] != 32:
                self.tables = max(self.tables, x.shape[0])
        return out


def test_no_table_of_all_logits_is_ever_made(monkeypatch):
    learns = policy()
    with Largest() as seen:
        gradients(learns, ("entropy_NS",))
    assert seen.tables == 15
    monkeypatch.setattr(logits, "rows", lambda weight: 4)
    with Largest() as seen:
        gradients(learns, ("entropy_NS",))
    assert 0 < seen.tables <= 4
