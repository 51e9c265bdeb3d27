"""Receipts: what a copy of the weights holds, as fingerprints that are compared with the trainer's wherever the copy is.

The fingerprint of a tensor is its type, its shape and two sums over its bytes, read as 64-bit integers x in rows of ``ROW``:

    of row r: sum_i a_i x_{r,i}  and  sum_i b_i (x_{r,i} >> 32)  modulo 2^64;  then over the rows  total <- total K + row

with fixed random a, b and an odd K. The second sum sees upper halves on their own, for in the first an even number of flipped top
bits would cancel. So tensors that differ in any given way have the same fingerprint with a probability of about 2^-32, and
the order of the elements counts. It is bits that are compared, so NaN and -0.0 count. Integers are not rounded, so every device and
any number of threads gives the same. It reads memory at about 7 GB/s on one core, five times as fast as hashlib's blake2b.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from gimbal.ops import philox

ROW = 1 << 15  # integers: 256 KiB, which stays in a core's cache
ROWS = 256  # at once on a device: 64 MiB
FACTOR = 0x9E3779B97F4A7C15  # K: odd
MOVING = ("dynamic", "longrope")  # rotary embeddings that a forward pass changes

Prints = Mapping[str, str]  # fingerprints by the names that tensors have in the policy


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a copy of the weights claims to be, and what it was found to hold."""

    version: int
    prints: Prints


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """Readings of one load by one copy: just before it (None: nothing was loaded yet) and just after."""

    who: str
    due: int  # the version that was sent
    before: Reading | None
    after: Reading


def tensors(module: nn.Module) -> dict[str, Tensor]:
    """All that a forward pass reads, under every name: parameters and buffers, also those that are not saved.

    Not those buffers that it changes by itself (``MOVING``), which are no weights.
    """
    found = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    for path, inner in module.named_modules():
        if any(kind in str(vars(inner).get("rope_type", "")) for kind in MOVING):
            for name in inner._buffers:
                found.pop(f"{path}.{name}" if path else name, None)
    return {name: tensor.detach() for name, tensor in found.items()}


def unsaved(module: nn.Module) -> set[str]:
    """The names of buffers that are in no ``state_dict`` and so are never delivered."""
    return {name for name, _ in module.named_buffers(remove_duplicate=False)} - module.state_dict().keys()


def fingerprints(held: Mapping[str, Tensor], form: Callable[[str, Tensor], Tensor] | None = None) -> dict[str, str]:
    """Of each tensor, or of what ``form`` makes of it under that name. One under several names is read once."""
    known: dict[object, str] = {}
    found: dict[str, str] = {}
    for name, tensor in held.items():
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype) if tensor.numel() else name
        if place not in known:
            known[place] = fingerprint(tensor if form is None else form(name, tensor))
        found[name] = known[place]
    return found


@torch.no_grad()
def fingerprint(tensor: Tensor) -> str:
    """Type, shape and two sums of 64 bits, as text."""
    low = high = 0
    for row_low, row_high in (_here if tensor.device.type == "cpu" else _on_a_device)(_bytes(tensor)):
        low, high = (low * FACTOR + row_low) % 2**64, (high * FACTOR + row_high) % 2**64
    kind = str(tensor.dtype).removeprefix("torch.")
    return f"{kind}{list(tensor.shape)}:{low:016x}{high:016x}"


def differences(expected: Prints, found: Prints) -> list[str]:
    """Each tensor that is not as expected, and how."""
    said: list[str] = []
    for name in [*expected, *(name for name in found if name not in expected)]:
        want, have = expected.get(name), found.get(name)
        if want == have:
            continue
        if want is None or have is None:
            said.append(f"{name} ({'missing' if have is None else 'one too many'})")
        elif (kinds := [text.partition(":")[0] for text in (have, want)])[0] != kinds[1]:
            said.append(f"{name} ({kinds[0]} for {kinds[1]})")
        else:
            said.append(f"{name} (other bits)")
    return said


def _bytes(tensor: Tensor) -> Tensor:
    """A view where that can be."""
    flat = tensor.detach().reshape(-1)
    if flat.stride(0) != 1:  # also of a single element, which passes for contiguous
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8)


def _here(bytes_B: Tensor) -> Iterator[tuple[int, int]]:
    """Both sums of each row, by numpy: the same integers as torch's, and of small tensors in a third of the time."""
    a_I, b_I = (factor_I.numpy() for factor_I in _factors(bytes_B.device))
    x_B = bytes_B.numpy()
    if beyond := -len(x_B) % 8:  # zeros behind the last
        x_B = np.frombuffer(x_B.tobytes() + bytes(beyond), np.uint8)
    all_W = x_B.view(np.int64)
    for begin in range(0, len(all_W), ROW):
        x_I = all_W[begin : begin + ROW]
        yield int(x_I @ a_I[: len(x_I)]), int((x_I >> 32) @ b_I[: len(x_I)])


def _on_a_device(bytes_B: Tensor) -> Iterator[tuple[int, int]]:
    """The same, many rows at once: CUDA has no product of integer vectors, and each answer that is waited for costs time."""
    a_I, b_I = _factors(bytes_B.device)
    if len(bytes_B) % 8 or bytes_B.storage_offset() % 8:
        bytes_B = nn.functional.pad(bytes_B, (0, -len(bytes_B) % 8)).clone()
    for x_W in bytes_B.view(torch.int64).split(ROW * ROWS):
        x_RI = nn.functional.pad(x_W, (0, -len(x_W) % ROW)).view(-1, ROW)
        yield from zip((x_RI * a_I).sum(1).tolist(), ((x_RI >> 32) * b_I).sum(1).tolist(), strict=True)


@cache
def _factors(device: torch.device) -> tuple[Tensor, Tensor]:
    drawn = philox("fingerprint").integers(0, 2**64, size=(2, ROW), dtype="uint64").view("int64")
    a_I, b_I = torch.from_numpy(drawn).to(device)
    return a_I, b_I
