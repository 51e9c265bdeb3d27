"""Upper confidence bounds of a mean, one-sided: with probability 1 - delta over the sample the true mean lies at or below.

Plain numbers in and out; the quantiles come from the regularised incomplete beta function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

TINY = 1e-300


def incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b), the distribution function of Beta(a, b): its continued fraction by Lentz's algorithm (textbook)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction of the complement is the faster one
        return 1 - incomplete_beta(1 - x, b, a)
    log_front = a * math.log(x) + b * math.log1p(-x) - math.lgamma(a) - math.lgamma(b) + math.lgamma(a + b)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or TINY)
    fraction = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 / (1 + term * d or TINY), 1 + term / c or TINY
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return math.exp(log_front) * fraction / a


@lru_cache(maxsize=256)
def student_quantile(p: float, freedom: int) -> float:
    """The p-quantile of Student's t with so many degrees of freedom."""
    if not 0 < p < 1 or freedom < 1:
        raise ValueError(
            f"there is no {p}-quantile of t with {freedom} degrees of freedom: 0 < p < 1, and one at least"
        )
    if p < 0.5:
        return -student_quantile(1 - p, freedom)
    high = 1.0
    while _student_tail(high, freedom) > 1 - p:
        high *= 2
    return _root(lambda t: (1 - p) - _student_tail(t, freedom), 0.0, high)


def student_width(n: int, delta: float) -> float:
    """t_{1 - delta, n - 1} / sqrt(n): what a standard deviation (ddof 1) is worth in the bound; inf for fewer than two values."""
    return student_quantile(1 - delta, n - 1) / math.sqrt(n) if n > 1 else math.inf


def student_upper(mean: float, std: float, n: int, delta: float) -> float:
    """mean + std t_{1 - delta, n - 1} / sqrt(n): exact for normal values, and for others as n grows.

    A sample without spread gives no information about unseen values: its bound is its mean.
    """
    return mean + (std * student_width(n, delta) if n > 1 else math.inf)


def hoeffding_upper(mean: float, n: int, delta: float, low: float = 0.0, high: float = 1.0) -> float:
    """mean + (high - low) sqrt(log(1 / delta) / (2 n)): valid for any n and any values within [low, high], and wide."""
    return mean + (high - low) * math.sqrt(math.log(1 / delta) / (2 * n))


@lru_cache(maxsize=4096)
def binomial_upper(hits: int, n: int, delta: float) -> float:
    """The largest p under which as few hits in n as these have probability delta (Clopper and Pearson 1934): exact for 0 or 1 each.

    No hits: 1 - delta^(1/n), which is about log(1 / delta) / n.
    """
    if hits >= n:
        return 1.0
    return _root(lambda p: incomplete_beta(p, hits + 1.0, float(n - hits)) - (1 - delta), 0.0, 1.0)


def _student_tail(t: float, freedom: int) -> float:
    return 0.5 * incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function crosses 0, by bisection down to neighbouring floats."""
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return high
