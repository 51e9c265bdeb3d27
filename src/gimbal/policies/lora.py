"""LoRA by peft: low-rank adapters are trained, saved and delivered; the model under them stays as it is."""

from __future__ import annotations

import json
import logging
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

ADAPTER = "default"  # peft's name of it
PREFIX = "base_model.model."  # which peft puts before the names in its files


@dataclass(frozen=True, kw_only=True)
class LoRA:
    """W + (alpha / rank) B A instead of W, with B starting at 0 (arXiv:2106.09685); only A and B are trained. Uses peft (extra
    ``peft``).

    ``targets`` are module names as peft accepts them; none means every linear layer but the output layer. ``adapter`` is a
    directory in peft's layout to continue from (it then sets rank, alpha and targets). There is no dropout: the trainer must
    evaluate the distribution that was sampled from.
    """

    rank: int = 16
    alpha: float = 32.0
    targets: tuple[str, ...] = ()
    adapter: str = ""

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"policy.lora.rank is {self.rank}; it must be at least 1")

    def attach(self, model: Any, seed: int, dtype: torch.dtype | None = None) -> None:
        """Put trainable adapters into a transformers model and freeze the rest. ``seed`` initialises A. ``dtype`` is of the adapters
        where it is not the model's."""
        self._attached(model, seed)
        if dtype is not None and dtype != model.dtype:
            for weight in model.parameters():
                weight.data = weight.data.to(dtype) if weight.requires_grad else weight.data
            if self.adapter:  # again: what was loaded took the model's own type on the way
                _peft().set_peft_model_state_dict(model, _peft().load_peft_weights(self.adapter, "cpu"), ADAPTER)

    def _attached(self, model: Any, seed: int) -> None:
        LoraConfig = _peft().LoraConfig
        if self.adapter:
            try:
                model.load_adapter(self.adapter, adapter_name=ADAPTER, is_trainable=True)
            except (OSError, ValueError, RuntimeError) as error:
                # peft and transformers raise all three for what is missing or does not fit.
                raise ValueError(f"{self.adapter} does not load as an adapter of this model: {error}") from error
            _fits(self.adapter, model)
            return
        config = LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,
            lora_dropout=0.0,
            target_modules=list(self.targets) or "all-linear",
            task_type="CAUSAL_LM",
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model.add_adapter(config, adapter_name=ADAPTER)


def base_of(directory: str) -> str:
    """The model that an adapter's directory was trained on; "" of any other directory."""
    try:
        said = json.loads((Path(directory) / "adapter_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # loading it says what is wrong
        return ""
    return str(said.get("base_model_name_or_path") or "") if isinstance(said, dict) else ""


def whole_model(directory: str, kind: Any, *, dtype: torch.dtype) -> Any:
    """The model that an adapter's directory names as its base, with the adapter merged in: a plain transformers model of this kind."""
    peft, base = _peft(), kind.from_pretrained(base_of(directory), dtype=dtype)
    with warnings.catch_warnings():
        # peft asks it of transformers.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        adapted = peft.PeftModel.from_pretrained(base, directory)
    _fits(directory, adapted)
    return adapted.merge_and_unload().requires_grad_(True)


def _fits(directory: str, adapted: Any) -> None:
    """Refuse an adapter whose file lacks matrices or holds others than this model has: peft draws the missing ones and continues."""
    from peft import get_peft_model_state_dict

    file = Path(directory) / "adapter_model.safetensors"
    if not file.is_file():  # older layouts, which torch reads
        return
    with safe_open(file, "pt") as opened:
        there = {name.removeprefix(PREFIX) for name in opened.keys()}  # noqa: SIM118 (it is no mapping)
    wanted = {name.removeprefix(PREFIX) for name in get_peft_model_state_dict(adapted, adapter_name=ADAPTER)}
    if there != wanted:
        lost, more = sorted(wanted - there), sorted(there - wanted)
        told = [
            f"{len(names)} {what}, such as {names[0]}"
            for names, what in ((lost, "missing"), (more, "unknown"))
            if names
        ]
        raise ValueError(f"{file} does not hold the matrices of its adapter_config.json: {'; '.join(told)}")


def merged(model: Any) -> dict[str, Tensor]:
    """The weights of an adapted model with its adapters added in, in float32 and then in the model's own precision, under the names
    that they have without adapters: what an engine is given that takes whole models only."""
    from peft.tuners.lora import LoraLayer, ParamWrapper

    state: dict[str, Tensor] = {}
    changed: dict[str, Any] = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    for name, tensor in model.state_dict().items():
        if ".lora_" in name:
            continue
        state[name.replace(".base_layer", "")] = tensor
    for name, module in changed.items():
        # Experts are parameters, no layers.
        own = module.parameter_name if isinstance(module, ParamWrapper) else "weight"
        weight = module.get_base_layer().get_parameter(own).detach()
        change = module.get_delta_weight(ADAPTER).detach()
        state[f"{name.replace('.base_layer', '')}.{own}"] = (weight.float() + change.float()).to(weight.dtype)
    return state


def _without_4bit(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Failed to load CPU gemm_4bit_forward")


def quiet_bitsandbytes() -> None:
    """Drop its warning about 4-bit kernels, which nothing here needs. To be called before whatever imports it, as peft does."""
    logging.getLogger("bitsandbytes.backends.cpu.ops").addFilter(_without_4bit)


def _peft() -> Any:
    quiet_bitsandbytes()
    try:
        import peft
    except ImportError as error:
        raise ValueError("LoRA adapters need peft: pip install -e '.[peft]' in the clone") from error
    return peft


def inject(model: Any, lora: LoRA, seed: int) -> None:
    """Put adapters into a module that is not of transformers, and freeze the rest of it."""
    peft = _peft()
    linear = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    targets = list(lora.targets) or linear
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if lora.adapter:
            config = peft.LoraConfig.from_pretrained(lora.adapter)
        else:
            config = peft.LoraConfig(r=lora.rank, lora_alpha=lora.alpha, lora_dropout=0.0, target_modules=targets)
        peft.inject_adapter_in_model(config, model, adapter_name=ADAPTER)
    if lora.adapter:
        found = peft.set_peft_model_state_dict(model, peft.load_peft_weights(lora.adapter, "cpu"), ADAPTER)
        lost = [name for name in found.missing_keys if ".lora_" in name]
        if lost or found.unexpected_keys:
            raise ValueError(
                f"{lora.adapter} does not load as an adapter of this model: {len(lost)} missing, "
                f"{len(found.unexpected_keys)} unknown matrices"
            )
    model.peft_config = {ADAPTER: config}
    for name, weight in model.named_parameters():
        weight.requires_grad_(".lora_" in name)


def save_adapter(model: Any, directory: Path) -> None:
    """In peft's layout."""
    from safetensors.torch import save_file

    config = model.peft_config[ADAPTER]
    config.save_pretrained(directory)
    save_file(_peft().get_peft_model_state_dict(model, adapter_name=ADAPTER), directory / "adapter_model.safetensors")
