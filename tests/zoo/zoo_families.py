"""Small random models of the families that people train, each with a BPE tokenizer, special tokens and a chat template of its kind.

Built here and saved as their own tools save them: config.json, generation_config.json, safetensors, tokenizer. What tells the families
apart is kept: tied embeddings, vocabularies larger than the tokenizer's, windows shorter than a rollout, fused projections, experts,
several ends of a turn, no padding token, a first token that the tokenizer adds or the template writes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

TEXT = [
    f"{a} + {b} = {a + b}. What is {a} times {b}? It is {a * b}, because we add {a} to itself {b} times.\n"
    for a in range(1, 12)
    for b in range(1, 12)
]
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


@cache
def bpe(style: str, special: tuple[str, ...], first: str) -> str:
    """A tokenizer trained on TEXT, as JSON: "bytes" as GPT-2's, "pieces" as SentencePiece's, with bytes for what it does not know.

    ``first`` is the token that the tokenizer puts before every text, "" being none.
    """
    if style == "bytes":
        tokenizer = Tokenizer(models.BPE())
        words = pre_tokenizers.Split(Regex(r"\p{N}| ?[^\s\p{N}]+|\s+(?!\S)|\s+"), "isolated")
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, plain])
        tokenizer.decoder = decoders.ByteLevel()
        alphabet, size = pre_tokenizers.ByteLevel.alphabet(), 360
    else:
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
        special, alphabet, size = ("<unk>", *special, *BYTES), [], 420
    trained = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trained)
    if first:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{first} $A", pair=f"{first} $A $B", special_tokens=[(first, tokenizer.token_to_id(first))]
        )
    said = json.loads(tokenizer.to_str())
    # The bytes are ordinary tokens: they decode to text.
    said["added_tokens"] = [token for token in said["added_tokens"] if token["content"] not in BYTES]
    return json.dumps(said)


CHATML = (
    "{%- if messages[0]['role'] != 'system' %}{{- '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{%- endif %}"
    "{%- for message in messages %}{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
HEADERS = (
    "{{- bos_token }}{%- for message in messages %}{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' "
    "+ message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
)
TURNS = (
    "{{ bos_token }}{%- if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{%- endif %}"
    "{%- for message in messages %}{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\n' "
    "+ message['content'] | trim + '<end_of_turn>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{%- endif %}"
)
INST = (
    "{{ bos_token }}{%- for message in messages %}{%- if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{%- else %}{{ ' ' + message['content'] + eos_token }}{%- endif %}{%- endfor %}"
)
PIPES = (
    "{%- for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{%- endif %}"
)
TULU = (
    "{{ bos_token }}{%- for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{%- endif %}"
)

SMALL: Mapping[str, Any] = {
    "vocab_size": 448, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "attn_implementation": "sdpa",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Family:
    """A model type of transformers, and what its released models come with: ``ends`` are tokens that end a turn, ``pad`` may lack."""

    type: str
    config: Mapping[str, Any] = field(default_factory=dict)  # beside SMALL's
    style: str = "bytes"
    special: tuple[str, ...]
    bos: str = ""
    adds_bos: bool = False
    eos: str
    ends: tuple[str, ...] = ()  # beside eos
    pad: str = ""
    template: str = ""


QWEN: Mapping[str, Any] = {
    "special": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), "eos": "<|im_end|>", "ends": ("<|endoftext|>",), "pad": "<|endoftext|>",
    "template": CHATML,
}  # fmt: skip
STRETCH = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
EXPERTS = {
    "head_dim": 8,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "norm_topk_prob": True,
}
LOCAL = {
    "head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip
FAMILIES = {
    "llama": Family(
        type="llama", config={"rope_parameters": STRETCH},
        special=("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        bos="<|begin_of_text|>", adds_bos=True, eos="<|eot_id|>", ends=("<|end_of_text|>",), template=HEADERS,
    ),
    "qwen2": Family(type="qwen2", config={"tie_word_embeddings": True}, **QWEN),
    "qwen3": Family(type="qwen3", config={"head_dim": 16, "tie_word_embeddings": True}, **QWEN),
    "qwen3_moe": Family(type="qwen3_moe", config=EXPERTS, **QWEN),
    "gemma3": Family(
        type="gemma3_text", config=LOCAL, style="pieces",
        special=("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"),
        bos="<bos>", adds_bos=True, eos="<eos>", ends=("<end_of_turn>",), pad="<pad>", template=TURNS,
    ),
    "mistral": Family(
        type="mistral", config={"sliding_window": 8, "head_dim": 8}, style="pieces",
        special=("<s>", "</s>", "[INST]", "[/INST]"), bos="<s>", adds_bos=True, eos="</s>", template=INST,
    ),
    "phi3": Family(
        type="phi3", config={"sliding_window": 12, "pad_token_id": None}, style="pieces",
        special=("<s>", "<|endoftext|>", "<|assistant|>", "<|system|>", "<|user|>", "<|end|>"),
        bos="<s>", eos="<|endoftext|>", ends=("<|end|>", "<|assistant|>"), pad="<|endoftext|>", template=PIPES,
    ),
    "gpt2": Family(type="gpt2", special=("<|endoftext|>",), bos="<|endoftext|>", eos="<|endoftext|>"),
    "olmo2": Family(
        type="olmo2", special=("<|endoftext|>", "<|pad|>"), bos="<|endoftext|>", eos="<|endoftext|>", pad="<|pad|>", template=TULU,
    ),
}  # fmt: skip


def tokenizer_of(family: Family) -> PreTrainedTokenizerFast:
    made = Tokenizer.from_str(bpe(family.style, family.special, family.bos if family.adds_bos else ""))
    named = {"bos_token": family.bos, "eos_token": family.eos, "pad_token": family.pad}
    others = [token for token in family.special if token not in named.values()]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made,
        clean_up_tokenization_spaces=False,
        additional_special_tokens=others,
        **{name: token for name, token in named.items() if token},
    )
    tokenizer.chat_template = family.template or None
    return tokenizer


def model_of(family: Family, tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> Any:
    """Drawn at random and with wider weights, as a random model is nearly indifferent: choices and mistakes must be visible."""
    settings = {**SMALL, **dict(family.config)}
    implementation = settings.pop("attn_implementation")
    tokens = {"bos_token_id": family.bos, "eos_token_id": family.eos, "pad_token_id": family.pad}
    settings |= {name: tokenizer.convert_tokens_to_ids(token) if token else None for name, token in tokens.items()}
    config = CONFIG_MAPPING[family.type](**settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.data.mul_(4.0)
    ends = [tokenizer.convert_tokens_to_ids(token) for token in (family.eos, *family.ends)]
    model.generation_config.eos_token_id = ends if len(ends) > 1 else ends[0]
    return model


def saved(name: str, directory: Path, **changes: Any) -> Path:
    """A family's model in a directory of its own, as ``save_pretrained`` leaves it; ``changes`` are of its config."""
    family, place = FAMILIES[name], directory / name
    family = replace(family, config={**family.config, **changes})
    tokenizer = tokenizer_of(family)
    model_of(family, tokenizer).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place
