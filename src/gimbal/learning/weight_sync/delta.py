"""Lossless sparse deltas: only weights whose bits changed are sent, and the receiver rebuilds all of them to the last bit.

A policy trained in float32 at a small learning rate moves most weights by less than half a unit in the last place of the sampler's
bfloat16: after the cast they are unchanged. With ``W`` and ``W'`` the cast weights of two versions, as integers,

    I = { i : bits(W_i) != bits(W'_i) },    payload = gaps of I, bits(W'_I) - bits(W_I) modulo 2^16,

both split into byte planes and entropy-coded. Bits are compared, not numbers, so NaN and -0.0 are kept. A tensor whose payload
would be no smaller than itself is sent whole; float32 weights change almost everywhere, so a delta saves little there.

A version is known by its *stamp*, (number, digest of all its bits). A delta names the stamp it builds on and the one it leads to:
a receiver applies it only to that base and accepts the result only under that digest (blake2b, about a second a GB). The stamp
shows if a receiver missed a version, was restarted or holds weights of an earlier run; it then gets the deltas from there, or a full
copy. So nothing must be acknowledged, and nothing can drift.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from safetensors import numpy as safetensors
from torch import Tensor

BUCKET = 64 * 2**20  # bytes after which a bucket is closed; one larger tensor makes a larger bucket
INTEGER = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of an element

Stamp = tuple[int, str]


class SyncError(ValueError):
    """A packet does not fit the weights it is applied to, or produces wrong bits."""


@dataclass(frozen=True, kw_only=True)
class Packet:
    """One version in transit: plain bytes, so any transport works (a queue, a file, an object store: put the packet itself).

    ``base`` is the stamp it builds on; None is a full copy. Each of ``buckets`` is a safetensors file with its own index and
    can be sent separately. ``share`` is the fraction of elements whose bits changed (1 for a full copy); ``checksum`` covers the
    buckets.
    """

    stamp: Stamp
    base: Stamp | None
    buckets: tuple[bytes, ...]
    share: float
    checksum: str

    @classmethod
    def of(cls, stamp: Stamp, base: Stamp | None, buckets: Sequence[bytes], share: float) -> Packet:
        return cls(stamp=stamp, base=base, buckets=tuple(buckets), share=share, checksum=_checksum(buckets))

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.buckets))


class Sender:
    """The learner's half: casts each version for sending, keeps its bits and the last ``keep`` deltas.

    ``dtype`` is the type floating tensors are cast to (the sampler's precision); None sends them as trained. Memory: one copy of
    the weights in that precision, on the CPU. Tied weights are sent once. ``publish`` replaces the held tensors without modifying
    them, so a shallow copy stays at its version, for a thread that answers requests while the next version is published.
    """

    def __init__(self, dtype: torch.dtype | None = torch.bfloat16, keep: int = 20) -> None:
        self.dtype = dtype
        self.stamp: Stamp | None = None
        self.keep = max(1, keep)
        self.deltas: tuple[Packet, ...] = ()
        self._held: dict[str, Tensor] = {}
        self._tied: dict[str, str] = {}  # other name -> the name it travels under
        self._full: Packet | None = None

    def publish(self, version: int, state: Mapping[str, Tensor]) -> Packet:
        """Take the version in: the delta to the one before, or a full copy if there is none or it had other tensors."""
        cast, self._tied = self._cast(state)
        base, self._full = self.stamp, None
        fits = {n: (t.dtype, t.shape) for n, t in cast.items()} == {
            n: (t.dtype, t.shape) for n, t in self._held.items()
        }
        old = self._held if fits and base is not None else None
        self._held = cast
        self.stamp = (version, digest(self._held))
        if self.stamp == base:  # told twice
            return self.deltas[-1] if self.deltas else self.full()
        if old is None:
            self.deltas = ()
            return self.full()
        buckets, changed = _encode(cast, old, self._tied)
        share = changed / max(1, sum(t.numel() for t in cast.values()))
        packet = Packet.of(self.stamp, base, buckets, share)
        self.deltas = (*self.deltas, packet)[-self.keep :]
        return packet

    def full(self) -> Packet:
        """All bits of the newest version."""
        assert self.stamp is not None, "publish comes first"
        if self._full is None:
            buckets, _ = _encode(self._held, None, self._tied)
            self._full = Packet.of(self.stamp, None, buckets, 1.0)
        return self._full

    def since(self, held: Stamp | None) -> list[Packet]:
        """The packets from this stamp (None: nothing held) to the newest version: none, deltas, or a full copy."""
        if held is not None and held == self.stamp:
            return []
        places = [i for i, packet in enumerate(self.deltas) if packet.base == held and held is not None]
        if not places or sum(p.nbytes for p in self.deltas[places[0] :]) >= self._nbytes:
            return [self.full()]
        return list(self.deltas[places[0] :])

    def kind(self, tensor: Tensor) -> torch.dtype:
        """As what it travels."""
        return self.dtype if self.dtype is not None and tensor.is_floating_point() else tensor.dtype

    @property
    def _nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self._held.values())

    def _cast(self, state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
        first: dict[tuple[int, torch.Size, tuple[int, ...], torch.dtype], str] = {}
        cast: dict[str, Tensor] = {}
        tied: dict[str, str] = {}
        for name in sorted(state):
            tensor = state[name].detach()
            place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
            if tensor.numel() and place in first:
                tied[name] = first[place]
                continue
            first[place] = name
            cast[name] = tensor.to("cpu", self.kind(tensor), copy=True).contiguous()
        return cast, tied


class Receiver:
    """The sampler's half: holds the last received weights on the CPU and updates them packet by packet."""

    def __init__(self) -> None:
        self.stamp: Stamp | None = None
        self.received = 0  # bytes so far
        self._held: dict[str, Tensor] = {}
        self._tied: dict[str, str] = {}

    @property
    def state(self) -> dict[str, Tensor]:
        """The weights under all their names; views of what is held, valid until the next packet."""
        assert self.stamp is not None, "nothing has been received"
        return self._held | {name: self._held[source] for name, source in self._tied.items()}

    def catch_up(self, since: Callable[[Stamp | None], Iterable[Packet]]) -> None:
        """Request the next packets and apply them; if they do not fit, request a full copy."""
        try:
            for packet in since(self.stamp):
                self.apply(packet)
        except SyncError:
            self.forget()
            for packet in since(None):
                self.apply(packet)

    def forget(self) -> None:
        self.stamp, self._held, self._tied = None, {}, {}

    def apply(self, packet: Packet) -> None:
        """Bring the weights to ``packet.stamp``. One that does not fit or is damaged raises SyncError before anything is touched."""
        if packet.base is not None and packet.base != self.stamp:
            raise SyncError(
                f"a delta from {packet.base} reached a sampler that holds {self.stamp}; ask for a full copy"
            )
        if _checksum(packet.buckets) != packet.checksum:
            raise SyncError(f"the packet of version {packet.stamp[0]} is damaged; ask for it again")
        if packet.base is None:
            self.forget()
        self.stamp = None  # until all of it is there
        for bucket in packet.buckets:
            self._tied |= _decode(bucket, self._held)
        self.received += packet.nbytes
        if digest(self._held) != packet.stamp[1]:
            self.forget()
            raise SyncError(
                f"the packet of version {packet.stamp[0]} led to other bits than were sent; ask for a full copy"
            )
        self.stamp = packet.stamp


def digest(state: Mapping[str, Tensor]) -> str:
    """blake2b of names, types, shapes and bits."""
    total = hashlib.blake2b(digest_size=16)
    for name in sorted(state):
        total.update(f"{name} {state[name].dtype} {tuple(state[name].shape)};".encode())
        total.update(_bits(state[name]).numpy().data)
    return total.hexdigest()


def _checksum(buckets: Iterable[bytes]) -> str:
    total = hashlib.blake2b(digest_size=16)
    for bucket in buckets:
        total.update(bucket)
    return total.hexdigest()


def _bits(tensor: Tensor) -> Tensor:
    """The elements as integers of the same size, flat; a view."""
    assert tensor.is_contiguous(), "what travels is contiguous"
    return tensor.view(-1).view(INTEGER[tensor.element_size()])


def _encode(
    new: Mapping[str, Tensor], old: Mapping[str, Tensor] | None, tied: Mapping[str, str]
) -> tuple[tuple[bytes, ...], int]:
    """(buckets, elements whose bits changed). Without ``old`` everything travels whole."""
    buckets: list[bytes] = []
    book: dict[str, object] = {}
    blobs: dict[str, np.ndarray] = {}
    changed = 0

    def close() -> None:
        address = json.dumps({"tensors": book, "tied": {} if buckets else dict(tied)}).encode()
        buckets.append(safetensors.save({**blobs, "book": np.frombuffer(address, dtype=np.uint8)}))
        book.clear()
        blobs.clear()

    for name, tensor in new.items():
        bits = _bits(tensor)
        places = torch.arange(0) if old is None else (bits != _bits(old[name])).nonzero()[:, 0]
        changed += bits.numel() if old is None else len(places)
        if old is not None and not len(places):
            continue
        entry: dict[str, object] = {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
        payload = _sparse(bits, _bits(old[name]), places) if old is not None else None
        if payload is None or sum(map(len, payload)) >= tensor.numel() * tensor.element_size():
            blobs[name] = bits.numpy().view(np.uint8)
        else:
            entry |= {"count": len(places), "planes": [len(plane) for plane in payload]}
            blobs[name] = np.frombuffer(b"".join(payload), dtype=np.uint8)
        book[name] = entry
        if sum(blob.nbytes for blob in blobs.values()) >= BUCKET:
            close()
    if book or not buckets:
        close()
    return tuple(buckets), changed


def _decode(bucket: bytes, held: dict[str, Tensor]) -> dict[str, str]:
    """Write a bucket into ``held``; returns tied names."""
    blobs = safetensors.load(bucket)
    book = json.loads(blobs.pop("book").tobytes())
    for name, entry in book["tensors"].items():
        if "count" not in entry:
            held[name] = torch.empty(entry["shape"], dtype=getattr(torch, entry["dtype"]))
            _bits(held[name]).numpy().view(np.uint8)[:] = blobs[name]
            continue
        bits, data = _bits(held[name]), blobs[name].tobytes()
        ends = np.cumsum(entry["planes"])
        planes = [data[end - length : end] for end, length in zip(ends, entry["planes"], strict=True)]
        width = bits.element_size()
        gaps = _joined(planes[:-width], entry["count"])
        zigzag = _joined(planes[-width:], entry["count"])
        steps = ((zigzag >> 1) ^ (0 - (zigzag & 1))).view(np.int64)
        places = torch.from_numpy(np.cumsum(gaps + 1).astype(np.int64) - 1)
        bits[places] += torch.from_numpy(steps).to(bits.dtype)  # wraps, as the difference did
    return book["tied"]


def _sparse(new: Tensor, old: Tensor, places: Tensor) -> list[bytes]:
    """Planes of the gaps between places (as many as the largest needs), then planes of the zigzag differences of the bits."""
    gaps = torch.diff(places, prepend=torch.tensor([-1])) - 1
    steps = (new[places] - old[places]).long()  # wraps in the element's own integers
    zigzag = (steps << 1) ^ (steps >> 63)
    width = max(1, -(-int(gaps.max()).bit_length() // 8))
    return [*_planes(gaps, width), *_planes(zigzag, new.element_size())]


def _planes(values: Tensor, width: int) -> list[bytes]:
    """Byte ``b`` of all values together, for each b: most of the upper ones are 0 and shrink to nothing."""
    bytes_NB = values.numpy().astype("<u8").view(np.uint8).reshape(-1, 8)
    return [_packed(np.ascontiguousarray(bytes_NB[:, b]).tobytes()) for b in range(width)]


def _packed(data: bytes) -> bytes:
    coder = zlib.compressobj(level=1, strategy=zlib.Z_RLE)  # there is nothing to find but frequencies and runs
    return coder.compress(data) + coder.flush()


def _joined(planes: Sequence[bytes], count: int) -> np.ndarray:
    bytes_NB = np.zeros((count, 8), dtype=np.uint8)
    for b, plane in enumerate(planes):
        bytes_NB[:, b] = np.frombuffer(zlib.decompress(plane), dtype=np.uint8)
    return bytes_NB.reshape(-1).view("<u8")
