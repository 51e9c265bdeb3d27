"""What n samples of a task say about k of them: unbiased estimates for evaluation. Plain numbers in and out.

C(n, k) is an exact integer, so nothing overflows or cancels, whatever n.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import combinations
from math import comb, isfinite

from gimbal.ops.seeds import philox

SUBSETS = 2000  # cons@k goes through all subsets up to this many, and draws as many above


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """1 - C(n - c, k) / C(n, k): the probability that k of the n samples hold a solved one (arXiv:2107.03374)."""
    _check(samples, passed, k)
    return 1.0 - comb(samples - passed, k) / comb(samples, k)


def pass_all_k(samples: int, passed: int, k: int) -> float:
    """pass^k, C(c, k) / C(n, k): the probability that k of the n samples are all solved (arXiv:2406.12045)."""
    _check(samples, passed, k)
    return comb(passed, k) / comb(samples, k)


def max_at_k(scores: Sequence[float], k: int) -> float:
    """The expected best of k of the scores: sum_i x_i C(i, k - 1) / C(n, k), x ascending and i from 0."""
    _check(len(scores), 0, k)
    if not all(isfinite(score) for score in scores):
        raise ValueError("a score is not finite; leave out what was not scored")
    total = comb(len(scores), k)
    return sum(score * (comb(i, k - 1) / total) for i, score in enumerate(sorted(scores)))


def cons_at_k(answers: Sequence[Hashable], right: Callable[[Hashable], bool], k: int, seed: int = 0) -> float:
    """The probability that the most frequent answer of k samples is right; ties count by their share of right answers.

    No answer (None) has no vote, and a subset without any answer is wrong. Exact up to ``SUBSETS`` subsets, else the mean over as
    many drawn ones.
    """
    n = len(answers)
    _check(n, 0, k)
    verdict = {answer: answer is not None and right(answer) for answer in set(answers)}
    if comb(n, k) <= SUBSETS:
        subsets = [list(chosen) for chosen in combinations(range(n), k)]
    else:
        stream = philox(seed, "cons@k", n, k)
        subsets = [stream.choice(n, size=k, replace=False).tolist() for _ in range(SUBSETS)]
    return sum(_vote([answers[i] for i in chosen], verdict) for chosen in subsets) / len(subsets)


def pass_at_arc(solved: Sequence[bool], cycles: Sequence[int], discount: float = 0.9) -> float:
    """Mean of solved x discount ** cycles: solving counts less the more refinements it took (VeriMind, arXiv:2503.16514).

    ``discount`` = 1: the share solved. The published formula could not be read: this one is ours, to be reported with the share
    solved and the mean number of cycles.
    """
    if not 0 <= discount <= 1:
        raise ValueError(f"discount is {discount}; it lies in [0, 1]")
    if not solved or len(solved) != len(cycles):
        raise ValueError(f"{len(solved)} verdicts and {len(cycles)} counts of cycles; give one of each for every task")
    return sum(discount**n for done, n in zip(solved, cycles, strict=True) if done) / len(solved)


def generalisation_factor(inside: float, outside: float, beta: float = 2.0) -> float:
    """F-measure of two relative gains, on tasks like those trained on and on others, ``beta`` times as heavy (SPECS, arXiv:2510.25801).

    (1 + beta^2) inside outside / (beta^2 inside + outside); 0 unless both gains are positive, where no mean of them is meant.
    """
    if inside <= 0 or outside <= 0:
        return 0.0
    return (1 + beta**2) * inside * outside / (beta**2 * inside + outside)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Places of the (utility, cost) points that no other point beats: at least the utility at no more cost, and better in one."""

    def beats(a: tuple[float, float], b: tuple[float, float]) -> bool:
        return a[0] >= b[0] and a[1] <= b[1] and a != b

    return [place for place, point in enumerate(points) if not any(beats(other, point) for other in points)]


def hypervolume(points: Sequence[tuple[float, float]], worst: tuple[float, float]) -> float:
    """The area between the Pareto front of the (utility, cost) points and a ``worst`` point, of which only what beats it counts."""
    better = [point for point in points if point[0] > worst[0] and point[1] < worst[1]]
    front = sorted({better[place] for place in pareto_front(better)}, key=lambda point: point[1])
    area, reached = 0.0, worst[0]
    for utility, cost in front:
        area += (utility - reached) * (worst[1] - cost)
        reached = utility
    return area


def _vote(votes: Sequence[Hashable], verdict: Mapping[Hashable, bool]) -> float:
    counts = Counter(vote for vote in votes if vote is not None)
    leaders = [answer for answer, count in counts.items() if count == max(counts.values())]
    return sum(verdict[answer] for answer in leaders) / len(leaders) if leaders else 0.0


def _check(samples: int, passed: int, k: int) -> None:
    if not 1 <= k <= samples:
        raise ValueError(f"k is {k} of {samples} samples; draw at least k, and k is 1 or more")
    if not 0 <= passed <= samples:
        raise ValueError(f"{passed} of {samples} samples passed; a count lies between")
