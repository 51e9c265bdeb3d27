"""Predict the memory of a language-model run with one formula; docs/memory.md explains it and compares it with real runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gimbal.engines.drafting.base import AbstractDrafter
from gimbal.engines.drafting.draft_model import DraftModel
from gimbal.engines.drafting.self_speculation import SelfSpeculation
from gimbal.engines.native import Native
from gimbal.learning.optimization import Optimization
from gimbal.learning.optimizers import stacks
from gimbal.learning.ranks import several
from gimbal.learning.updates.policy_gradient import REFERENCE, AbstractPolicyGradient
from gimbal.policies import logits
from gimbal.policies.lora import LoRA
from gimbal.policies.token import CausalLM
from gimbal.runtime.run import AbstractRun

PROMPT = 256  # prompt length assumed before the tasks are encoded
CGROUP = Path("/sys/fs/cgroup/memory.max")  # a container's limit
# What to change if a term of the formula is the largest; for other terms the model itself is too large.
TURN = {
    "cache": "lower engine.slots or sampling.max_length",
    "activations": "set checkpointing=true, or lower microbatch_tokens or sampling.max_length",
    "output layer": "lower microbatch_tokens or sampling.max_length",
    "sampler": "set engine.precision=bfloat16",
}
PROCESS = 500e6  # main memory for Python, torch and transformers
# Numbers that an optimiser stores per weight; Muon's 2 apply outside the blocks.
STATE = {"adamw": 2.0, "muon": 1.0, "sgd": 1.0}
EIGHT_BITS = 2 + 8 / 256  # bytes per weight for both moments, with a float32 scale per block of 256 numbers
TABLES = 5  # float32 copies of a chunk of logits, for its gradient


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A model's sizes for the formula. ``outputs`` and ``sides`` are sums over the linear layers of all blocks: of outputs, and of
    inputs plus outputs. ``cached``: keys and values per token. ``context``: the most tokens the model
    supports."""

    weights: int
    head: int
    tied: bool
    width: int
    blocks: int
    in_blocks: int
    outputs: int
    sides: int
    cached: int
    context: int

    @classmethod
    def of(cls, directory: str) -> Shape:
        """From its config.json: the model is created without weights."""
        from transformers.models.auto.configuration_auto import AutoConfig
        from transformers.models.auto.modeling_auto import AutoModelForCausalLM

        config = AutoConfig.from_pretrained(directory)
        with torch.device("meta"):
            return cls.of_model(AutoModelForCausalLM.from_config(config))

    @classmethod
    def of_model(cls, model: Any) -> Shape:
        config = model.config.get_text_config()
        embedded, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
        blocks = [block for stack in stacks(model) for block in stack.children()]
        sizes = [_sides(layer) for block in blocks for layer in block.modules() if _linear(layer)]
        heads = config.num_attention_heads
        width = config.head_dim if hasattr(config, "head_dim") else config.hidden_size // heads
        heads = config.num_key_value_heads if hasattr(config, "num_key_value_heads") else heads
        return cls(
            weights=sum(weight.numel() for weight in model.parameters()),
            head=head.numel(),
            tied=head is embedded,
            width=embedded.shape[1],
            blocks=len(blocks),
            in_blocks=sum(weight.numel() for block in blocks for weight in block.parameters()),
            outputs=sum(out for _, out in sizes),
            sides=sum(sum(both) for both in sizes),
            cached=2 * heads * width * len(blocks),
            context=config.max_position_embeddings,
        )

    def adapters(self, lora: LoRA | None) -> int:
        return 0 if lora is None else lora.rank * self.sides


def predicted(run: AbstractRun, shape: Shape, prompt: int) -> dict[str, float]:
    """Peak bytes of a learner step in one process, by use; ``prompt`` is the length of the longest prompt in tokens.

    All terms add up: a process on a CPU keeps what passes have freed. Anchors and critics with their own weights come on top.
    """
    policy, optimization = run.policy, run.learns.optimization
    assert isinstance(policy, CausalLM), "the formula is for language models"
    mixed = policy.mixed_precision == "bf16"
    own = getattr(torch, policy.dtype).itemsize  # bytes per trained weight
    held = 2 if mixed and policy.lora is not None else own
    trained = shape.adapters(policy.lora) or shape.weights
    length = prompt + run.sampling.max_length
    group = prompt + run.num_generations * run.sampling.max_length  # a group's prompt is evaluated once
    tokens = min(max(optimization.microbatch_tokens, length), run.prompts_per_step * group)
    found = {
        "weights": float(held * shape.weights + (own * trained if policy.lora is not None else 0)),
        "gradients": float(own * trained),
        "optimizer": _remembered(optimization, own, shape, trained),
        "activations": _activations(shape, tokens, mixed, own, optimization.checkpointing),
        "output layer": _output(shape, tokens, mixed, own, policy.lora is None),
        "other models": _reference(run, float(held * shape.weights)) if REFERENCE in run.learns.models() else 0.0,
        "process": PROCESS,
    }
    if isinstance(run.engine, Native):
        size = 2 if run.engine.precision == "bfloat16" else 4
        found["sampler"] = float(size * (shape.weights + (trained if policy.lora is not None else 0)))
        if (drafter := run.engine.drafter) is not None:
            found["drafter"] = _drafter(drafter, shape)
        # Its capacity doubles when it grows.
        found["cache"] = float(2 * size * shape.cached * run.engine.slots * length)
    if (rule := run.learns.stability) is not None:
        found["closed loop"] = float(own * trained * (1 if rule.fallback is None else 3))
    return found


def _reference(run: AbstractRun, like_the_policy: float) -> float:
    """Bytes of the model that parts pull towards."""
    own = run.learns.reference if isinstance(run.learns, AbstractPolicyGradient) else None
    shape = shape_of(own) if isinstance(own, CausalLM) else None
    if not isinstance(own, CausalLM) or shape is None:
        return like_the_policy
    return float(getattr(torch, own.dtype).itemsize * shape.weights)


def _drafter(drafter: AbstractDrafter, shape: Shape) -> float:
    if isinstance(drafter, SelfSpeculation):
        return float(shape.weights)
    if not isinstance(drafter, DraftModel):
        return 0.0
    if drafter.model:
        its = shape_of(CausalLM(model=drafter.model))
        return 0.0 if its is None else 16.0 * its.weights
    return 16.0 * (shape.weights - shape.in_blocks * (1 - drafter.layers / shape.blocks))


def shape_of(policy: CausalLM) -> Shape | None:
    """Its model's shape, if the model is on this disk and can be inspected without weights."""
    if not (Path(policy.path) / "config.json").is_file():
        return None
    try:
        return Shape.of(policy.path)
    except Exception:  # an unsupported architecture can raise anything: loading it reports what is wrong
        return None


def too_long(run: AbstractRun) -> Iterator[str]:
    """Advice if no full-length rollout fits the model's context, whatever the prompt."""
    policy = run.policy
    shape = shape_of(policy) if isinstance(policy, CausalLM) else None
    if isinstance(policy, CausalLM) and shape is not None and run.sampling.max_length >= shape.context:
        yield (
            f"sampling.max_length={run.sampling.max_length:,} leaves no room for a prompt: {policy.model} supports "
            f"{shape.context:,} tokens, prompt included; sampling.max_length={max(1, shape.context // 2)} leaves half for the prompt"
        )


def too_large(run: AbstractRun) -> Iterator[str]:
    """Advice if the formula exceeds the available memory; not a refusal, because it assumes full-length rollouts and batches."""
    shape = shape_of(run.policy) if isinstance(run.policy, CausalLM) and run.devices is None and not several() else None
    if shape is None:
        return
    found, (there, place) = predicted(run, shape, min(PROMPT, shape.context)), room()
    if sum(found.values()) > there:
        turn = TURN.get(max(found, key=lambda part: found[part]), "train an adapter: 'lora=LoRA(rank=16)'")
        yield (
            f"this run may need {told(found)}, but {place} has {there / 1e9:.1f} GB: {turn} (docs/memory.md has the formula and "
            "more options)"
        )


def room() -> tuple[float, str]:
    """(bytes available to learner and sampler, the name of the device)."""
    if torch.cuda.is_available():
        return float(torch.cuda.get_device_properties(0).total_memory), "the GPU"
    limit = CGROUP.read_text().strip() if CGROUP.is_file() else "max"
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return float(min(there, int(limit)) if limit.isdecimal() else there), "this machine"


def told(found: Mapping[str, float]) -> str:
    """The total and its largest terms."""
    parts = sorted(found, key=lambda name: -found[name])[:4]
    return f"{sum(found.values()) / 1e9:.1f} GB ({', '.join(f'{name} {found[name] / 1e9:.1f}' for name in parts)})"


def _remembered(optimization: Optimization, own: int, shape: Shape, trained: int) -> float:
    if optimization.optimizer == "adamw_8bit":
        return EIGHT_BITS * trained
    size = getattr(torch, optimization.optimizer_dtype).itemsize if optimization.optimizer_dtype else own
    rest = trained - shape.in_blocks if optimization.optimizer == "muon" and trained == shape.weights else 0
    return float(size) * (STATE[optimization.optimizer] * trained + rest)


def _activations(shape: Shape, tokens: int, mixed: bool, own: int, checkpointing: bool) -> float:
    """Inputs and outputs of linear layers in the compute type, norms and the residual in the weights' type."""
    layers = 2 * (2 if mixed else own) * shape.outputs + (24 if mixed else 4 * own) * shape.width * shape.blocks
    casts = 2 * shape.in_blocks if mixed else 0  # casts of matrices, for the backward pass
    if checkpointing:  # one block at a time, plus each block's input
        return tokens * (layers / shape.blocks + own * shape.width * shape.blocks) + casts / shape.blocks
    return float(tokens * layers + casts)


def _output(shape: Shape, tokens: int, mixed: bool, own: int, trained: bool) -> float:
    """A chunk of logits, the gradient of a matrix that embeds too, which is added to another one, and casts."""
    vocabulary = shape.head // shape.width
    chunk = min(logits.held(shape.head, gpu=torch.cuda.is_available()), tokens * vocabulary)
    passing = (own * shape.tied if trained else 0) + (2 + 2 * trained if mixed else 0)
    return float(4 * TABLES * chunk + passing * shape.head)


def _linear(layer: nn.Module) -> bool:
    """Also handles GPT-2, whose matrices are transposed."""
    return isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D"


def _sides(layer: Any) -> tuple[int, int]:
    rows, columns = layer.weight.shape
    return (columns, rows) if isinstance(layer, nn.Linear) else (rows, columns)
