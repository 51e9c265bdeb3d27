"""The sampler's own copy of the model, in the sampler's precision."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

Precision = Literal["float32", "bfloat16", "int8"]

# The largest mean |log-prob gap| to a float32 trainer at equal weights that each is taken to explain. Measured on gimbal-tiny:
# see docs/log.md; a gap beyond it means other weights.
TOLERANCE: Mapping[str, float] = {"float32": 1e-3, "bfloat16": 0.1, "int8": 0.3}


class ModelCopy:
    """A frozen copy of a transformers model that is loaded again and again.

    float32 and bfloat16 copy the weights in place. int8 is torch's dynamic quantisation of every linear layer: weights rounded to 8
    bits with one scale a tensor, activations quantised as they come. The rounding is a real train-inference discrepancy, and the
    same at every load of the same weights.
    """

    def __init__(self, model: nn.Module, precision: Precision) -> None:
        if precision == "int8" and next(model.parameters()).device.type != "cpu":
            raise ValueError("engine.precision=int8 runs on the CPU only (torch's dynamic quantisation); use bfloat16")
        self.precision = precision
        plain = copy.deepcopy(model).eval().requires_grad_(False)
        self._plain = plain.to(torch.bfloat16) if precision == "bfloat16" else plain
        self.module: Any = self._plain

    def load(self, state: Mapping[str, Tensor]) -> None:
        # Not strict: a tied output layer may be named once or twice. Unknown and missing names are refused below.
        result = self._plain.load_state_dict(state, strict=False)
        known = {name for name, _ in self._plain.named_parameters()} & set(result.missing_keys)
        if known or result.unexpected_keys:
            raise ValueError(
                f"weights do not fit the sampler's model: missing {known}, unknown {result.unexpected_keys}"
            )
        if self.precision == "int8":
            self.module = _quantised(self._plain)


def _quantised(model: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        # torch announces that this will move to another package; until then it is the one way that torch itself ships.
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
