"""Settings for pretrained models in place of those a recipe has for gimbal-tiny: a table by size, and what holds for all sizes.

    learning rate   1e-6 for all weights: the default of TRL's GRPO, and what most published runs use (DAPO, Search-R1); 1e-5 for
                    LoRA, ten times as much ("LoRA Without Regret", Schulman et al. 2025)
    precision       float32 weights computed in bfloat16, and a bfloat16 sampler, if the machine supports bfloat16; otherwise the
                    sampler has the precision of the weights, never the int8 of recipes for gimbal-tiny
    checkpointing   on: without it, activations take the most memory after the weights
    max_length      256 below 1 B (TRL's default is 512); 1,024, as verl's examples for mathematics, above; at most half of the context
    microbatch, slots   so that activations and the sampler's cache stay below the weights and their moments (docs/memory.md)

The recipe's batch stays: 16 prompts of 8 rollouts are usual for pretrained models too. What the user sets never changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gimbal.config import RECIPE_FILE, locate, override, paths, reachable, read_file
from gimbal.engines.native import Native
from gimbal.engines.precision import TOLERANCE
from gimbal.policies.loading import SHIPPED
from gimbal.policies.token import CausalLM
from gimbal.runtime.memory import PROMPT, Shape, predicted, shape_of, told
from gimbal.runtime.run import AbstractRun

DATA = ("tasks", "held_out", "rewards")  # keys that have nothing to do with size


@dataclass(frozen=True, kw_only=True)
class Size:
    """Settings for models of up to ``parameters``."""

    parameters: float
    max_length: int
    microbatch_tokens: int
    slots: int


TABLE = (
    Size(parameters=1e9, max_length=256, microbatch_tokens=16384, slots=64),
    Size(parameters=4e9, max_length=1024, microbatch_tokens=8192, slots=64),
    Size(parameters=math.inf, max_length=1024, microbatch_tokens=4096, slots=32),
)


def sized(recipe: AbstractRun, run: AbstractRun, changes: Mapping[str, Any]) -> tuple[AbstractRun, str]:
    """The run with settings for its model's size, and a sentence on what was chosen; ``changes`` are the user's."""
    policy = run.policy
    if not isinstance(policy, CausalLM) or not isinstance(recipe.policy, CausalLM):
        return run, ""
    if recipe.policy.model not in SHIPPED or policy.model in SHIPPED:
        return run, ""
    settings = {key: value for key, value in changes.items() if key.partition(".")[0] not in DATA}
    given = {path for key, value in settings.items() for path, _ in locate(run, key, value)}
    if not policy.large:  # the recipe's sizes fit, but for the int8 of its sampler
        return _precise(run, policy, given)
    shape = shape_of(policy)
    weights = math.inf if shape is None else shape.weights  # a model that is not on this disk counts as large
    size = next(row for row in TABLE if weights <= row.parameters)
    wanted = _wanted(run, policy, size, shape)
    # A mean over the longest possible rollout.
    if paths(recipe).get("aggregation.length") == recipe.sampling.max_length:
        wanted["aggregation.length"] = float(wanted["sampling.max_length"])
    chosen = {
        path: value
        for path, value in wanted.items()
        if reachable(run, path) and not any(path == other or path.startswith(f"{other}.") for other in given)
    }
    if not chosen:
        return run, ""
    run = override(run, chosen)
    count = "is not on this disk" if shape is None else f"has {shape.weights / 1e9:.2g} B parameters"
    words = " ".join(f"{path.rpartition('.')[2]}={_shown(value)}" for path, value in chosen.items())
    memory = "" if shape is None else f"; about {told(predicted(run, shape, PROMPT))} with prompts of {PROMPT} tokens"
    return run, (
        f"{policy.model} {count}, but the recipe's settings are for a model of 1 M: this run uses {words} instead (published rates for "
        f"{'LoRA' if policy.lora is not None else 'full training'}, and settings that save memory; docs/memory.md){memory}. "
        "Your own settings are not changed"
    )


def _precise(run: AbstractRun, policy: CausalLM, given: Set[str]) -> tuple[AbstractRun, str]:
    """Sampled as the gimbal run that saved the model did, or in the precision of its weights, unless the user chose one."""
    asked = any("engine.precision".startswith(path) for path in given)
    if asked or not isinstance(run.engine, Native) or run.engine.precision != "int8":
        return run, ""
    before, own = _before(policy.path), _own_precision(policy)
    precision = before or own
    if precision == run.engine.precision:
        return run, ""
    own_or_near = "the precision of its weights" if own == policy.dtype else f"the sampler's nearest to {policy.dtype}"
    why = "as in the run that trained it" if before else own_or_near
    return override(run, {"engine.precision": precision}), (
        f"{policy.model} is sampled in {precision}, {why}; engine.precision=int8 samples as the recipe does"
    )


def _before(model: str) -> str:
    """The sampler's precision in the gimbal run that saved or exported this model; "" if there was no such run."""
    for file in (Path(model, "..", RECIPE_FILE), Path(model, RECIPE_FILE)):
        try:
            run = read_file(file).get("run")
        # There is none, or another program's: its models may lie beside a file of this name.
        except (ValueError, OSError):
            continue
        engine = run.get("engine") if isinstance(run, Mapping) else None
        precision = engine.get("precision") if isinstance(engine, Mapping) else None
        if isinstance(precision, str) and precision in TOLERANCE:
            return precision
    return ""


def _own_precision(policy: CausalLM) -> str:
    """The sampler's nearest to that of the weights: it has neither float64 nor float16."""
    return "bfloat16" if policy.dtype == "bfloat16" else "float32"


def _wanted(run: AbstractRun, policy: CausalLM, size: Size, shape: Shape | None) -> dict[str, Any]:
    length = size.max_length if shape is None else max(1, min(size.max_length, shape.context // 2))
    wanted: dict[str, Any] = {
        "optimization.learning_rate": 1e-6 if policy.lora is None else 1e-5,
        "optimization.checkpointing": True,
        "optimization.microbatch_tokens": size.microbatch_tokens,
        "sampling.max_length": length,
    }
    coarse = torch.cuda.is_available() or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if coarse and policy.dtype == "float32":
        wanted["policy.mixed_precision"] = "bf16"
    if isinstance(run.engine, Native):
        wanted["engine.slots"] = size.slots
        # That of the weights, as a user of transformers expects: int8 is for gimbal-tiny, or for who asks for it.
        wanted["engine.precision"] = "bfloat16" if coarse else _own_precision(policy)
    return wanted


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
