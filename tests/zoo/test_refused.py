"""What cannot be done exactly is refused by name, before a run begins; what makes it so is what the models themselves say."""

import dataclasses
import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from zoo_families import FAMILIES, SMALL, model_of, saved, tokenizer_of

from gimbal.engines import cache
from gimbal.engines.native import Native
from gimbal.environments.dataset import Rows
from gimbal.policies import exact, layout
from gimbal.policies.token import CausalLM, TokenPolicy, Tokens

EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "head_dim": 8,
}
# Of the trainer: what it says instead of training.
UNTRAINED = {
    "gemma2": ({"head_dim": 8}, "gemma2 changes its logits after the output layer .final_logit_softcapping=30.0."),
    "cohere": ({}, "cohere changes its logits after the output layer .logit_scale=0.0625."),
    "granite": ({"logits_scaling": 4.0}, "granite changes its logits after the output layer .logits_scaling=4.0."),
    "bert": ({}, "bert looks ahead"),
    "llama4_text": (EXPERTS | {"intermediate_size_mlp": 48}, "llama4_text has no output layer apart from its body"),
}  # fmt: skip
# Of the native engine; they may be trained, but no two rows behind one copy of their prompt.
UNSAMPLED = {
    "qwen3_next": (
        EXPERTS | {
            "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
            "shared_expert_intermediate_size": 24, "num_hidden_layers": 4,
        },
        "qwen3_next keeps layers of linear_attention.*engine='VLLM",
    ),
    "mamba": ({"state_size": 8}, "mamba keeps a state .*engine='VLLM"),
    "bloom": ({}, "bloom keeps a state .*engine='VLLM"),
}  # fmt: skip
# Beyond the zoo: attention sinks, windows of other forms, other positions, experts of other forms.
ALSO_EXACT = {
    "gpt_oss": {**EXPERTS, "sliding_window": 8}, "olmo3": {"sliding_window": 8}, "starcoder2": {"sliding_window": 8},
    "mixtral": EXPERTS,
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 24}, "gpt_neox": {}, "phi": {}, "opt": {},
    "smollm3": {},
}  # fmt: skip


def model(kind, seed=0, **changes):
    settings = {**SMALL, "vocab_size": 97, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2, **changes}
    settings.pop("attn_implementation")
    torch.manual_seed(seed)
    made = AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**settings)).eval()
    for parameter in made.parameters():
        if parameter.ndim > 1:
            parameter.data.mul_(4.0)
    return made


@pytest.mark.parametrize("kind", UNTRAINED)
def test_log_probabilities_that_the_trainer_would_get_wrong(kind):
    changes, reason = UNTRAINED[kind]
    with pytest.raises(ValueError, match=reason):
        exact.shares(model(kind, **changes))


@pytest.mark.parametrize("kind", UNSAMPLED)
def test_states_that_the_native_engine_does_not_hold(kind):
    changes, reason = UNSAMPLED[kind]
    made = model(kind, **changes)
    with pytest.raises(ValueError, match=reason):
        Native(slots=2).start(TokenPolicy(made, None))
    assert not exact.shares(made)


@pytest.mark.parametrize("kind", ALSO_EXACT)
def test_more_models_that_are_exact(kind):
    made = model(kind, **ALSO_EXACT[kind])
    assert exact.shares(made)
    cache.check_continues(made)


@pytest.mark.parametrize("kind", ["gemma3", "mistral", "phi3"])
@pytest.mark.parametrize("window", [8, 4096])
def test_a_window_that_is_forgotten_is_seen_however_wide(kind, window, monkeypatch):
    """Trainer and sampler share the mask: without a window in it both would agree, and be wrong."""
    family = dataclasses.replace(FAMILIES[kind], config={**FAMILIES[kind].config, "sliding_window": window})
    made = model_of(family, tokenizer_of(family))
    assert exact.shares(made)
    cache.check_continues(made)
    assert made.config.sliding_window == window

    def windowless(model, mask_RQK, query_RQ, key_RK):
        return layout.additive(mask_RQK, model.dtype)[:, None]

    for module in (layout, cache):
        monkeypatch.setattr(module, "attention", windowless)
    monkeypatch.setattr(exact, "_sharing", {})
    monkeypatch.setattr(cache, "_continuing", {})
    assert not exact.shares(made)
    with pytest.raises(ValueError, match="would sample from another distribution"):
        cache.check_continues(made)


@pytest.mark.parametrize("kind", ["gemma3", "mistral", "phi3"])
def test_rows_behind_one_prompt_see_as_far_as_rows_alone(kind, monkeypatch):
    family = FAMILIES[kind]
    policy = TokenPolicy(model_of(family, tokenizer_of(family)), None)
    prompt, drawn = list(range(30, 41)), list(range(50, 80))
    tokens = Tokens.stack(
        [Tokens.row(prompt, drawn[:13]), Tokens.row(prompt, drawn[13:]), Tokens.row(prompt, drawn[:3])]
    )
    with torch.no_grad():
        together = policy.evaluate(tokens).logprob_NS
        policy.__dict__["shares"] = None
        torch.testing.assert_close(policy.evaluate(tokens).logprob_NS, together, atol=1e-5, rtol=0)


def test_positions_that_stretch_for_the_whole_batch(tmp_path):
    scale = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
    scale |= {"original_max_position_embeddings": 32}
    family = dataclasses.replace(
        FAMILIES["phi3"], config={"rope_parameters": scale, "original_max_position_embeddings": 32, "head_dim": 8}
    )
    tokenizer = tokenizer_of(family)
    policy = TokenPolicy(model_of(family, tokenizer), tokenizer)
    task = Rows(rows=[{"prompt": "5 + 6 ="}])[0]
    assert policy.accepts(task, 20) == ""
    with pytest.raises(ValueError, match=r"it passes the 32 from which on phi3 scales positions .*max_length=2\d does"):
        policy.accepts(task, 30)


def test_a_template_that_takes_no_system_message(tmp_path):
    """Before the first rollout, though the text is short enough to need no counting."""
    policy = CausalLM(model=str(saved("gemma3", tmp_path))).load()
    user, system = {"role": "user", "content": "2 + 2?"}, {"role": "system", "content": "Be brief."}
    asked = Rows(rows=[{"prompt": [user]}, {"prompt": [system, user]}])
    assert policy.accepts(asked[0], 8) == ""
    with pytest.raises(ValueError, match=r"chat template refuses task .*, of the roles system, user: System role"):
        policy.accepts(asked[1], 8)


def test_the_page_lists_what_is_tested():
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| `")]
    listed = {word: cells[1] for cells in rows for word in re.findall(r"`(\w+)`", cells[0])}
    exact_ones = {family.type for family in FAMILIES.values()} | set(ALSO_EXACT)
    assert {kind for kind, said in listed.items() if said.startswith("exact")} == exact_ones
    assert {kind for kind, said in listed.items() if said.startswith("refused by the trainer")} == set(UNTRAINED)
    assert {kind for kind, said in listed.items() if said.startswith("refused by the native engine")} == set(UNSAMPLED)
    assert len(listed) == len(exact_ones | set(UNTRAINED) | set(UNSAMPLED))
