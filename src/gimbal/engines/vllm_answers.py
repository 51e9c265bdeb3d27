"""What a vLLM server answers, checked: a mistake in it would be trained on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gimbal.engines.vllm_http import LIFE

SENTINEL = -9998.0  # vLLM writes -9999 for a log-probability that is not finite
# vLLM joins some matrices into one.
JOINED = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
}


def drawn_of(choice: Mapping[str, Any]) -> list[tuple[int, float, int]]:
    """(token, its log-probability, its version) of each, or a ValueError that states what is wrong with the answer."""
    tokens, spans = choice["token_ids"], choice["weight_versions"] or []
    logprobs = [entry["logprob"] for entry in (choice["logprobs"] or {"content": []})["content"]]
    if len(tokens) != len(logprobs):
        raise ValueError(
            f"the vLLM server sent {len(tokens)} tokens and {len(logprobs)} log-probabilities; the counts must match"
        )
    if bad := [value for value in logprobs if value is None or not SENTINEL < value <= 1e-3]:
        raise ValueError(
            f"the vLLM server sent a log-probability of {bad[0]} for a token it sampled: its weights may hold NaN, or it samples "
            "with other settings than it reports"
        )
    versions: list[int] = []
    for span in spans:
        life, _, version = span["version"].rpartition("/")
        if life != LIFE:
            raise ValueError(
                f"the vLLM server sampled tokens with weights that are not this run's (it calls them {span['version']!r}): it "
                "received others, or another run trains with it; use one server per run"
            )
        versions += [int(version)] * (span["end"] - span["start"])
    if len(versions) != len(tokens):
        raise ValueError(f"the vLLM server sent {len(tokens)} tokens and the version of {len(versions)}")
    return list(zip(tokens, logprobs, versions, strict=True))


def logprob_of(choice: Mapping[str, Any], token: int) -> float:
    return next(one["logprob"] for one in choice["logprobs"]["content"][0]["top_logprobs"] if one["token_id"] == token)


def checksums(tensors: Mapping[str, Tensor], precision: str) -> dict[str, str]:
    """What vLLM's checker reports for these weights if it holds them as sent, by its names."""
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    parts: dict[str, list[Tensor]] = {}
    for name, tensor in tensors.items():
        plain = name.removeprefix("model.")
        for part, whole in JOINED.items():
            plain = plain.replace(f".{part}.", f".{whole}.")
        parts.setdefault(plain, []).append(tensor.detach().to("cpu", dtype))
    return {name: _sha256(held[0] if len(held) == 1 else torch.cat(held)) for name, held in parts.items()}


def _sha256(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().view(-1).view(torch.uint8).numpy().data).hexdigest()
