"""Statistics of runs over seeds, as Agarwal et al. (2021, arXiv:2108.13264) define them: pure functions on arrays.

Scores are ``score_RT``: R runs (seeds) of each of T tasks (evaluations), larger being better. A leading B counts resamples, so that
every statistic covers all resamples at once. The strata of the bootstrap are the tasks: runs are redrawn with replacement
within each task, never across tasks. All randomness comes from a given generator.

The percentile bootstrap is narrow for few runs: docs/compare.md has its measured coverage. Therefore ``permutation_p``, which
keeps its level for any number of runs, decides whether two arms differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float
from numpy import ndarray as Array

RESAMPLES = 10_000
ARRANGEMENTS = 20_000  # most that a permutation test enumerates; beyond, it samples as many

# A statistic of resampled arms: one array [B, R, T] an arm -> [B].
Statistic = Callable[..., Array]


def interquartile_mean(score_BRT: Float[Array, "*B R T"]) -> Float[Array, "*B"]:
    """Mean of the middle half of all R * T scores: floor(R T / 4) are cut off at either end (scipy's trim_mean at 0.25)."""
    flat_BK = np.sort(score_BRT.reshape(*score_BRT.shape[:-2], -1), axis=-1)
    cut = flat_BK.shape[-1] // 4
    return np.asarray(flat_BK[..., cut : flat_BK.shape[-1] - cut].mean(-1))


def improvement(x_BRT: Float[Array, "*B R T"], y_BQT: Float[Array, "*B Q T"]) -> Float[Array, "*B"]:
    """Probability of improvement: P(x > y) + P(x = y) / 2 for a run of each, averaged over the tasks."""
    x_BR1T, y_B1QT = x_BRT[..., :, None, :], y_BQT[..., None, :, :]
    return np.asarray(((x_BR1T > y_B1QT) + 0.5 * (x_BR1T == y_B1QT)).mean((-3, -2, -1)))


def wins(arms: Sequence[Float[Array, "*B _ T"]]) -> Float[Array, "*B A A"]:
    """Wins of each arm over each other, of as many games as the smaller one has runs: its probability of improvement, as a share of
    them, and half a win more for either, so that an arm that always wins has a finite strength."""
    win_AAB = np.zeros((len(arms), len(arms), *arms[0].shape[:-2]))
    for (i, x_BRT), (j, y_BQT) in combinations(enumerate(arms), 2):
        games, share_B = min(x_BRT.shape[-2], y_BQT.shape[-2]), improvement(x_BRT, y_BQT)
        win_AAB[i, j], win_AAB[j, i] = games * share_B + 0.5, games * (1 - share_B) + 0.5
    return np.moveaxis(win_AAB, (0, 1), (-2, -1))


def strengths(win_BAA: Float[Array, "*B A A"], most: int = 200) -> Float[Array, "*B A"]:
    """Bradley-Terry strengths b by maximum likelihood: P(i beats j) = 1 / (1 + exp(b_j - b_i)), in log-odds above the mean arm.

    By Newton's method on the log-likelihood, which is concave, in steps of at most 1, until none moves by 1e-9; RuntimeError after
    ``most`` steps. Every arm must have beaten another and lost to one (``wins``). Two arms: b_1 - b_2 is the log of their wins' ratio.
    Source: RobotArena infinity (2025) ranks policies so.
    """
    arms = win_BAA.shape[-1]
    games_BAA = win_BAA + np.swapaxes(win_BAA, -1, -2)
    strength_BA = np.zeros(win_BAA.shape[:-1])
    for _ in range(most):
        chance_BAA = 1 / (1 + np.exp(strength_BA[..., None, :] - strength_BA[..., :, None]))
        slope_BA = (win_BAA - games_BAA * chance_BAA).sum(-1)
        bend_BAA = games_BAA * chance_BAA * (1 - chance_BAA)
        # The mean of all strengths is free; 1 / arms in each place holds it at 0.
        curve_BAA = bend_BAA.sum(-1)[..., None] * np.eye(arms) - bend_BAA + 1 / arms
        move_BA = np.linalg.solve(curve_BAA, slope_BA[..., None])[..., 0]
        strength_BA = strength_BA + np.clip(move_BA, -1, 1)
        if float(np.abs(move_BA).max()) < 1e-9:
            return strength_BA - strength_BA.mean(-1, keepdims=True)
    raise RuntimeError(f"strengths of {arms} arms have not settled after {most} steps of Newton's method")


def profile(score_BRT: Float[Array, "*B R T"], tau_K: Float[Array, " K"]) -> Float[Array, "*B K"]:
    """Performance profile: the share of all runs and tasks that score above each of K thresholds."""
    flat_BM = score_BRT.reshape(*score_BRT.shape[:-2], -1)
    return np.stack([(flat_BM > tau).mean(-1) for tau in tau_K], axis=-1)


def resample(score_RT: Float[Array, "R T"], count: int, generator: np.random.Generator) -> Float[Array, "B R T"]:
    """``count`` stratified resamples: each entry comes from a run drawn with replacement, task by task."""
    runs, tasks = score_RT.shape
    index_BRT = generator.integers(runs, size=(count, runs, tasks))
    return score_RT[index_BRT, np.arange(tasks)]


def percentiles(value_B: Float[Array, " B *K"], level: float = 0.95) -> tuple[Float[Array, "*K"], Float[Array, "*K"]]:
    """(lower, upper) ends of the percentile interval. NaN counts against both ends."""
    tail = (1 - level) / 2
    low = np.quantile(np.where(np.isnan(value_B), -np.inf, value_B), tail, axis=0, method="inverted_cdf")
    high = np.quantile(np.where(np.isnan(value_B), np.inf, value_B), 1 - tail, axis=0, method="inverted_cdf")
    return np.asarray(low), np.asarray(high)


def interval(
    statistic: Statistic,
    arms: Sequence[Float[Array, "_ T"]],
    generator: np.random.Generator,
    level: float = 0.95,
    count: int = RESAMPLES,
) -> tuple[float, float] | None:
    """Stratified bootstrap interval of a statistic of one or more arms, each resampled separately; None for an arm of one run."""
    if min(len(score_RT) for score_RT in arms) < 2:
        return None
    low, high = percentiles(statistic(*(resample(score_RT, count, generator) for score_RT in arms)), level)
    return float(low), float(high)


def time_to(value_K: Float[Array, " K"], clock_K: Float[Array, " K"], threshold: float, window: int = 1) -> float:
    """The clock when the mean of the last ``window`` values first is ``threshold`` or more; infinite if it never is.

    Fewer than ``window`` values never reach it. NaN is not above anything.
    """
    if len(value_K) < window:
        return math.inf
    mean_J = np.convolve(value_K, np.full(window, 1 / window), mode="valid")
    reached = np.flatnonzero(mean_J >= threshold - 1e-12)
    return float(clock_K[window - 1 + reached[0]]) if len(reached) else math.inf


def censored(times: Sequence[float], ends: Sequence[float]) -> tuple[list[float], float]:
    """Make times comparable if some run never arrived: (times, horizon).

    A run that had not arrived when it ended at ``end`` might have arrived at any later time. Times after the earliest such
    end, the horizon, cannot be distinguished from it and are infinite too. Without such a run the horizon is infinite.
    """
    horizon = min((end for time, end in zip(times, ends, strict=True) if math.isinf(time)), default=math.inf)
    return [time if time <= horizon else math.inf for time in times], horizon


def time_ratio(x_BRT: Float[Array, "*B R T"], y_BQT: Float[Array, "*B Q T"]) -> Float[Array, "*B"]:
    """Interquartile mean of x's times over that of y's, task by task; the geometric mean of them over the tasks.

    Infinite times (``censored``) are cut off as the largest; if more than a quarter of the runs are infinite, the mean is infinite
    and the ratio 0 or infinite, or NaN if both are.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        logs = [
            np.log(interquartile_mean(x_BRT[..., task : task + 1]))
            - np.log(interquartile_mean(y_BQT[..., task : task + 1]))
            for task in range(x_BRT.shape[-1])
        ]
        return np.asarray(np.exp(np.mean(logs, axis=0)))


def permutation_p(
    x_RT: Float[Array, "R T"], y_QT: Float[Array, "Q T"], generator: np.random.Generator, most: int = ARRANGEMENTS
) -> float:
    """Two-sided p of "the runs of both arms come from one distribution", by the distance of ``improvement`` from 1/2.

    Enumerates every way of assigning the R + Q runs to the two arms, separately per task; above ``most`` of them it samples that
    many and counts them with the observed one. With one task this is the exact Mann-Whitney test, including ties and infinities.
    The smallest possible p with one task and R = Q is 2 / C(2R, R): 0.1 for 3 runs each, 0.03 for 4.
    """
    runs, tasks = x_RT.shape
    pooled_MT = np.concatenate([x_RT, y_QT])
    total = len(pooled_MT)
    exact = tasks == 1 and math.comb(total, runs) <= most
    if exact:
        deals = [[*c, *(i for i in range(total) if i not in c)] for c in combinations(range(total), runs)]
        index_BMT = np.array(deals)[:, :, None]
    else:
        index_BMT = generator.permuted(np.tile(np.arange(total)[:, None], (most, 1, tasks)), axis=1)
    dealt_BMT = pooled_MT[index_BMT, np.arange(tasks)]
    distance_B = np.abs(improvement(dealt_BMT[:, :runs], dealt_BMT[:, runs:]) - 0.5)
    as_far = int((distance_B >= abs(float(improvement(x_RT, y_QT)) - 0.5) - 1e-12).sum())
    return as_far / len(distance_B) if exact else (as_far + 1) / (len(distance_B) + 1)
