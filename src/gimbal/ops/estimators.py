"""Unbiased evaluation estimates about k samples of a task from n. Plain numbers in and out.

C(n, k) is an exact integer, so nothing overflows or cancels, whatever n.
"""

from __future__ import annotations

from math import comb


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k): the probability that k of the n samples hold a solved one (arXiv:2107.03374)."""
    _check(samples, passed, k)
    return 1.0 - comb(samples - passed, k) / comb(samples, k)


def _check(samples: int, passed: int, k: int) -> None:
    if not 1 <= k <= samples:
        raise ValueError(f"k is {k} of {samples} samples; draw at least k, and k is 1 or more")
    if not 0 <= passed <= samples:
        raise ValueError(f"{passed} of {samples} samples passed; the count must be in between")
