"""Random streams named by their purpose: the same name gives the same stream, whatever else runs."""

from __future__ import annotations

import hashlib

import numpy as np


def stable_hash(*names: object) -> int:
    """A 63-bit integer that depends only on the printed names, in every process and on every machine."""
    text = "\x1f".join(str(name) for name in names)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def philox(*names: object) -> np.random.Generator:
    """A counter-based generator for (run seed, purpose, task, sample, ...)."""
    return np.random.Generator(np.random.Philox(key=stable_hash(*names)))
