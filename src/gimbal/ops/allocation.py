"""A number of rollouts shared out among prompts by what another one is worth on each."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


def mixed_failures(most: int, chance_P: Float[np.ndarray, " P"]) -> Float[np.ndarray, "P B"]:
    """U(B, p) = B (1 - p) (1 - (1 - p)^(B - 1)) for B = 0..most: the expected number of failures in a group that holds a success too.

    0 for p = 0 and p = 1, and for B below 2: such a group teaches nothing that compares.
    """
    fail_P1, count_B = 1 - chance_P[:, None], np.arange(most + 1)
    return count_B * fail_P1 * (1 - fail_P1 ** np.maximum(count_B - 1, 0))


def allocate(utility_PB: Float[np.ndarray, "P B"], total: int, least: int) -> Int[np.ndarray, " P"]:
    """How many of ``total`` each gets: ``least``, and then again and again as many more as gain most for each one spent.

    Looking several ahead matters where the first ones gain less than the next. Equal gains go to who has fewest, then to the first.
    What gains nothing is not spent; no one gets more than the table's last column.
    """
    prompts, most = utility_PB.shape[0], utility_PB.shape[1] - 1
    count_P = np.full(prompts, least)
    left = total - least * prompts

    def best(place: int) -> tuple[float, int, int, int]:
        """(gain for each one spent, minus the count, minus the place, how many)."""
        count = int(count_P[place])
        ahead = utility_PB[place, count + 1 : min(most, count + left) + 1] - utility_PB[place, count]
        gains = ahead / np.arange(1, len(ahead) + 1)
        more = int(gains.argmax()) if len(gains) else -1
        return (float(gains[more]) if len(gains) else 0.0), -count, -place, more + 1

    offers = [best(place) for place in range(prompts)]
    while left > 0 and (offer := max(offers))[0] > 1e-12:
        count_P[-offer[2]] += offer[3]
        left -= offer[3]
        offers = [best(n) if n == -offer[2] or offers[n][3] > left else offers[n] for n in range(prompts)]
    return count_P


def shared(weight_P: Float[np.ndarray, " P"], total: int, least: int, most: int) -> Int[np.ndarray, " P"]:
    """``total`` in proportion to the weights, from ``least`` to ``most`` each: clip(scale w, least, most), with the scale that makes
    them add up, then whole numbers by the largest remainders.

    For w = sqrt(v) it minimises sum v / n within these bounds, and the scale is one over the root of the price of a rollout. What all
    at ``most`` do not take is not spent; what all at ``least`` exceed it by is.
    """
    total = min(max(total, least * len(weight_P)), most * len(weight_P))
    weight_P = np.maximum(weight_P, 1e-9 * (float(weight_P.max()) or 1.0))  # all 0: equal shares
    low, high = 0.0, most / float(weight_P.min())
    for _ in range(200):
        scale = (low + high) / 2
        enough = np.clip(scale * weight_P, least, most).sum() >= total
        low, high = (low, scale) if enough else (scale, high)
    exact_P = np.clip(high * weight_P, least, most)
    count_P = np.floor(exact_P + 1e-9).astype(int)
    for place in np.argsort(-(exact_P - count_P), kind="stable")[: total - count_P.sum()]:
        count_P[place] += 1
    return count_P
