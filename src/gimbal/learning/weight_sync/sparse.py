"""Sparse deltas over memory and over files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from gimbal import durable
from gimbal.engines.base import AbstractEngine
from gimbal.learning.weight_sync.base import AbstractDistantEngine, AbstractWeightSync, AbstractWeightSyncSpec, Since
from gimbal.learning.weight_sync.delta import Packet, Receiver, Sender, Stamp, SyncError

HEAD = "head.json"
ATTEMPTS = 3  # a reader may be overtaken by the removal of old versions
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, kw_only=True)
class Sparse(AbstractWeightSyncSpec):
    """Sends only weights whose bits changed, cast to ``dtype``; the sampler restores them bit for bit (``delta.py``).

    ``dtype`` should be the sampler's own precision. ``directory`` "" delivers within the process, and through the object store to the
    workers of ``runtime=Ray()``; else packets are also written there as files for samplers to read, with a full copy every
    ``full_every`` versions.
    """

    dtype: str = "bfloat16"
    directory: str = ""
    full_every: int = 20

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"sync.dtype is {self.dtype!r}; choose among {', '.join(DTYPES)}, the sampler's precision")
        if self.full_every < 1:
            raise ValueError(f"sync.full_every is {self.full_every}; it counts versions and must be at least 1")

    def start(self) -> AbstractWeightSync:
        dtype = DTYPES[self.dtype]
        return FileSync(Path(self.directory), dtype, self.full_every) if self.directory else DeltaSync(dtype)


class DeltaSync(AbstractWeightSync):
    """Packets in memory. Each engine has its own receiver, so one that is late or missed versions catches up.

    Receivers of a remote engine are where its weights are, one per copy.
    """

    def __init__(self, dtype: torch.dtype | None = torch.bfloat16) -> None:
        self.sender = Sender(dtype)
        self.newest: Packet | None = None
        self._receivers: WeakKeyDictionary[AbstractEngine, Receiver] = WeakKeyDictionary()

    def publish(self, version: int, state: Mapping[str, Tensor]) -> None:
        self.newest = self.sender.publish(version, state)

    def deliver(self, engine: AbstractEngine) -> None:
        if isinstance(engine, AbstractDistantEngine):
            _send(self.sender, engine)
        else:
            _bring(self._receivers.setdefault(engine, Receiver()), self.sender.since, engine)

    def travels(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.sender.kind(tensor))

    def metrics(self) -> dict[str, float]:
        return _metrics(self.newest)


class FileSync(AbstractWeightSync):
    """Packets as directories ``v00000012.full`` and ``v00000012.delta``; one process publishes, any number deliver from there.

    A packet is written under another name and renamed when it is complete and on disk. Packets older than the second-newest full
    copy are removed; an overtaken reader looks again. A starting learner removes an earlier run's packets: samplers that hold those
    weights cannot continue from them and take the full copy.
    """

    def __init__(self, directory: Path, dtype: torch.dtype | None = torch.bfloat16, full_every: int = 20) -> None:
        self.directory, self.full_every = directory, full_every
        self.newest: Packet | None = None
        self._sender = Sender(dtype, keep=1)
        self._until_full = 0  # versions; at 1 or below the next has a full copy
        self._receivers: WeakKeyDictionary[AbstractEngine, Receiver] = WeakKeyDictionary()

    def publish(self, version: int, state: Mapping[str, Tensor]) -> None:
        first = self._sender.stamp is None
        self.newest = packet = self._sender.publish(version, state)
        until = self._until_full
        full = packet.base is None or until <= 1
        self._until_full = 0  # if a write fails, later deltas lead nowhere: begin again
        if packet.base is not None:
            _write(self.directory, packet)
        if full:
            _write(self.directory, self._sender.full())
        self._until_full = self.full_every if full else until - 1
        if first:
            self._remove_others(version)
        self._remove_old()

    def deliver(self, engine: AbstractEngine) -> None:
        if isinstance(engine, AbstractDistantEngine):
            _send(self._sender, engine)
        else:
            _bring(self._receivers.setdefault(engine, Receiver()), self.since, engine)

    def travels(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._sender.kind(tensor))

    def metrics(self) -> dict[str, float]:
        return _metrics(self.newest)

    def since(self, held: Stamp | None) -> list[Packet]:
        """The packets from this stamp to the newest version in the directory."""
        for _ in range(ATTEMPTS):
            try:
                return [_read(path) for path in self._way(held)]
            except FileNotFoundError:
                continue
        raise SyncError(f"packets in {self.directory} disappear while being read; do two learners write there?")

    def _way(self, held: Stamp | None) -> list[Path]:
        heads = {path.parent: json.loads(path.read_text()) for path in sorted(self.directory.glob(f"v*/{HEAD}"))}
        if not heads:
            raise SyncError(f"{self.directory} holds no weights yet: the learner publishes them there")
        deltas = {tuple(head["base"]): path for path, head in heads.items() if head["base"]}

        def follow(stamp: Stamp | None) -> list[Path]:
            way: list[Path] = []
            while stamp in deltas:
                way.append(deltas[stamp])
                stamp = tuple(heads[way[-1]]["stamp"])
            return way

        stamps = {tuple(head["stamp"]) for head in heads.values()}
        onward = follow(held)
        end = tuple(heads[onward[-1]]["stamp"]) if onward else held
        if end in stamps and end[0] == max(version for version, _ in stamps):
            return onward
        full = max(path for path, head in heads.items() if not head["base"])
        return [full, *follow(tuple(heads[full]["stamp"]))]

    def _remove_old(self) -> None:
        """Everything before the second-newest full copy, since current readers may still need what follows it."""
        fulls = sorted(self.directory.glob("v*.full"))
        for path in self.directory.glob("v*.*"):
            if path.stem < fulls[max(0, len(fulls) - 2)].stem:
                shutil.rmtree(path, ignore_errors=True)

    def _remove_others(self, version: int) -> None:
        """All but the full copy of this version: packets of an earlier life, which may have got further."""
        for path in [*self.directory.glob("v*.*"), *self.directory.glob(".partial_*")]:
            if path.name != f"v{version:08d}.full":
                shutil.rmtree(path, ignore_errors=True)


def _send(sender: Sender, engine: AbstractDistantEngine) -> None:
    assert sender.stamp is not None, "publish comes before deliver"
    engine.load_packets(sender.stamp[0], copy(sender).since)


def _bring(receiver: Receiver, since: Since, engine: AbstractEngine) -> None:
    receiver.catch_up(since)
    assert receiver.stamp is not None, "a receiver that caught up holds weights"
    engine.load(receiver.stamp[0], receiver.state)


def _metrics(packet: Packet | None) -> dict[str, float]:
    return {} if packet is None else {"sync/bytes": float(packet.nbytes), "sync/changed_frac": packet.share}


def _write(directory: Path, packet: Packet) -> None:
    kind = "delta" if packet.base else "full"
    final, partial = (directory / f"{prefix}v{packet.stamp[0]:08d}.{kind}" for prefix in ("", ".partial_"))
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for number, bucket in enumerate(packet.buckets):
        _durable(partial / f"{number:04d}.safetensors", bucket)
    head = {"stamp": packet.stamp, "base": packet.base, "share": packet.share, "checksum": packet.checksum}
    _durable(partial / HEAD, json.dumps(head | {"buckets": len(packet.buckets)}).encode())
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)


def _durable(path: Path, data: bytes) -> None:
    with durable.named(path), path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> Packet:
    head = json.loads((path / HEAD).read_text())
    buckets = tuple((path / f"{number:04d}.safetensors").read_bytes() for number in range(head["buckets"]))
    base = tuple(head["base"]) if head["base"] else None
    return Packet(
        stamp=tuple(head["stamp"]), base=base, buckets=buckets, share=head["share"], checksum=head["checksum"]
    )
