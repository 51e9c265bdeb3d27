"""The sampler's own copy of the model, in the sampler's precision."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.engines.receipts import Prints, fingerprints, tensors, unsaved

Precision = Literal["float32", "bfloat16", "int8"]

# The largest mean |log-prob gap| to a float32 trainer at equal weights that each is taken to explain: a gap beyond it means other
# weights. Measured on gimbal-tiny; docs/sync.md has int8's.
TOLERANCE: Mapping[str, float] = {"float32": 1e-3, "bfloat16": 0.1, "int8": 0.6}


BLOCK = 1 << 17  # elements that are rounded at once: what stays in a core's cache is done five times as fast


@torch.no_grad()
def rounded(weight: Float[Tensor, "rows columns"], axis: int, levels: int = 127) -> Float[Tensor, "rows columns"]:
    """The weight as few bits hold it: round(w / s) s with |w / s| <= levels, one scale s for each index of ``axis``.

    ``levels`` 127 is int8, 7 is int4. All-zero channels stay zero. Weights already on such a grid stay as they are.
    """
    found = torch.empty_like(weight, dtype=torch.float32)
    channels = max(1, BLOCK // max(1, weight.shape[1 - axis])) if weight.device.type == "cpu" else weight.shape[axis]
    for part, into in zip(weight.split(channels, axis), found.split(channels, axis), strict=True):
        w = part.float()
        scale_C = (w.abs().amax(1 - axis, keepdim=True) / levels).clamp_(min=torch.finfo(torch.float32).tiny)
        torch.mul(w, 1 / scale_C, out=into).round_().mul_(scale_C)
    return found


@dataclass(frozen=True, kw_only=True)
class Form:
    """How a sampler holds the trainer's tensors: floating ones cast to ``dtype`` (None: as they are), those in ``axes`` rounded first.

    ``kept`` are held as the trainer has them: buffers that are not sent. ``names`` lists the tensors of a reading (None: every tensor
    of the model). ``held`` is False where the sampler's own tensors cannot be read; a reading then covers what its loader received.
    """

    dtype: torch.dtype | None = None
    axes: Mapping[str, int] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    names: frozenset[str] | None = None
    held: bool = True

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        if name in self.kept or self.dtype is None or not tensor.is_floating_point():
            return tensor
        return (rounded(tensor, self.axes[name]) if name in self.axes else tensor).to(self.dtype)

    def prints(self, tensors: Mapping[str, Tensor]) -> Prints:
        """What a reading must be after these were loaded."""
        wanted = tensors if self.names is None else {name: t for name, t in tensors.items() if name in self.names}
        return fingerprints(wanted, self)


class ModelCopy:
    """A frozen copy of a transformers model that is reloaded for each version.

    float32 and bfloat16 copy the weights with a cast. int8 rounds every linear layer but the output layer to 8 bits, one scale
    per output channel, and computes in float32: the same numbers as weight-only int8 kernels. (Kernels that also round activations
    choose one scale for the whole batch, so a text depends on its neighbours.) The rounding is a real train-inference discrepancy, and
    the same at every load of the same weights.
    """

    def __init__(self, model: Any, precision: Precision) -> None:
        frozen = {f"model.{name}" for name, parameter in model.named_parameters() if not parameter.requires_grad}
        self.module: Any = copy.deepcopy(model).eval().requires_grad_(False)
        self.module.to(torch.bfloat16 if precision == "bfloat16" else torch.float32)
        kept = unsaved(model)
        for name in kept:  # such as the frequencies of positions, which bfloat16 would shift
            path, _, own = name.rpartition(".")
            self.module.get_submodule(path).register_buffer(own, model.get_buffer(name).clone(), persistent=False)
        if self.module.config._attn_implementation not in ("sdpa", "eager"):
            self.module.set_attn_implementation("sdpa")  # the others take no mask of ours
        axes = _output_axes(self.module) if precision == "int8" else {}
        held = {f"model.{name}": tensor for name, tensor in self.module.state_dict(keep_vars=True).items()}
        self.form = Form(
            dtype=torch.bfloat16 if precision == "bfloat16" else torch.float32,
            axes={name: axes[id(tensor)] for name, tensor in held.items() if id(tensor) in axes},
            kept=frozenset(f"model.{name}" for name in kept),
        )
        self._fit = Fit(held, frozen)
        for name in frozen:  # they need not be delivered
            self._fit.tensors[name].copy_(self.form(name, self._fit.tensors[name]))

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copy the weights in; ``state`` has the names of ``TokenPolicy.state_dict``. Nothing is copied if one is wrong."""
        for name, new in self._fit(state).items():
            held = self._fit.tensors[name]
            held.copy_(self.form(name, new.to(held.device)))

    def move(self, device: torch.device) -> None:
        """Parameters and buffers to another device; the tensors stay the same objects."""
        for tensor in (*self.module.parameters(), *self.module.buffers()):
            if tensor.device != device:
                tensor.data = tensor.data.to(device)

    def prints(self) -> Prints:
        """Of what the next forward pass will read, taken from the module itself."""
        return fingerprints({f"model.{name}": tensor for name, tensor in tensors(self.module).items()})


class Fit:
    """Delivered weights against a model's own tensors. Tied ones are one tensor under several names, delivered under any of them;
    ``frozen`` ones are already correct and may be left out."""

    def __init__(self, tensors: Mapping[str, Tensor], frozen: Collection[str] = ()) -> None:
        self._frozen = frozenset(frozen)
        self.tensors: dict[str, Tensor] = {}  # each once, by its first name
        self._names: dict[str, list[str]] = {}  # all names of each
        first: dict[int, str] = {}
        for name, tensor in tensors.items():
            known = first.setdefault(id(tensor), name)
            self.tensors[known] = tensor
            self._names.setdefault(known, []).append(name)

    def __call__(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The delivered tensor of each, by its first name; a ValueError if anything is unknown, missing or of another shape."""
        unknown = state.keys() - {name for names in self._names.values() for name in names}
        chosen = {first: [name for name in names if name in state] for first, names in self._names.items()}
        missing = [first for first, found in chosen.items() if not found and first not in self._frozen]
        wrong = [
            f"{found[0]} {tuple(state[found[0]].shape)} for {tuple(self.tensors[first].shape)}"
            for first, found in chosen.items()
            if found and state[found[0]].shape != self.tensors[first].shape
        ]
        if unknown or missing or wrong:
            raise ValueError(
                f"these weights do not fit the sampler's model: unknown {sorted(unknown)[:3]}, missing {missing[:3]}, of another "
                f"shape {wrong[:3]}; deliver the state_dict of a policy of the same architecture"
            )
        return {first: state[found[0]] for first, found in chosen.items() if found}


def _output_axes(model: Any) -> dict[int, int]:
    """id of the weight -> the axis of its output channels, for every linear layer but the output layer and adapters."""
    from transformers.pytorch_utils import Conv1D

    head = model.get_output_embeddings()
    linear = [
        m for name, m in model.named_modules() if isinstance(m, nn.Linear) and ".lora_" not in name and m is not head
    ]
    axes = {id(m.weight): 0 for m in linear}
    return axes | {id(m.weight): 1 for m in model.modules() if isinstance(m, Conv1D)}
