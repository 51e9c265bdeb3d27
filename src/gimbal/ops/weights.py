"""The weights and buffers of a module."""

from __future__ import annotations

from torch import Tensor, nn


def weights_of(module: nn.Module) -> list[Tensor]:
    """As ``[*module.parameters()]``, in that order and each once. That takes as long as a layer of a small network, and this a fifth.

    Not kept between calls: a sharded module's weights are other tensors during a pass.
    """
    found: dict[int, Tensor] = {}
    _enter(module, found)
    return [*found.values()]


def buffers_of(module: nn.Module) -> list[Tensor]:
    """As ``[*module.buffers()]``, in that order and each once."""
    found: dict[int, Tensor] = {}
    _enter_buffers(module, found)
    return [*found.values()]


def _enter(module: nn.Module, found: dict[int, Tensor]) -> None:
    for weight in module._parameters.values():
        if weight is not None:
            found[id(weight)] = weight
    for child in module._modules.values():
        if child is not None and (child._parameters or child._modules):
            _enter(child, found)


def _enter_buffers(module: nn.Module, found: dict[int, Tensor]) -> None:
    for buffer in module._buffers.values():
        if buffer is not None:
            found[id(buffer)] = buffer
    for child in module._modules.values():
        if child is not None and (child._buffers or child._modules):
            _enter_buffers(child, found)
