"""An interval that claims share: the bootstrap of a median whose values belong together in clusters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gimbal.report.statistics import RESAMPLES, percentiles


def clustered(
    clusters: Sequence[Sequence[float]], generator: np.random.Generator, count: int = RESAMPLES
) -> tuple[float, float]:
    """95 % percentile interval of the median over all values: whole clusters are redrawn with replacement, as many as there are."""
    value_K = np.concatenate([np.asarray(cluster, float) for cluster in clusters])
    cluster_K = np.repeat(np.arange(len(clusters)), [len(cluster) for cluster in clusters])
    order_K = np.argsort(value_K)
    times_BC = generator.multinomial(len(clusters), np.full(len(clusters), 1 / len(clusters)), size=count)
    # How many values of a redraw lie at or below each: a value counts as often as its cluster was drawn.
    upto_BK = times_BC[:, cluster_K[order_K]].cumsum(1)
    half_B1 = upto_BK[:, -1:] / 2
    low_B, high_B = ((upto_BK < half_B1).sum(1), (upto_BK <= half_B1).sum(1))
    low, high = percentiles((value_K[order_K[low_B]] + value_K[order_K[high_B]]) / 2)
    return float(low), float(high)
