"""The bootstrap over clusters: its median is the median, and what belongs together does not count as more evidence."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))
from intervals import clustered


def generator():
    return np.random.default_rng(0)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (1, 3, 2, 4), (2, 2)])
def test_it_is_what_redrawing_clusters_one_by_one_gives(sizes):
    rng = np.random.default_rng(1)
    clusters = [rng.normal(size=size) for size in sizes]
    times_BC = generator().multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=500)
    medians = [
        np.median(np.concatenate([one for one, n in zip(clusters, times, strict=True) for _ in range(n)]))
        for times in times_BC
    ]
    ends = np.quantile(medians, [0.025, 0.975], method="inverted_cdf")
    assert clustered(clusters, generator(), 500) == pytest.approx(tuple(ends))


def test_values_that_come_twice_in_a_cluster_make_the_interval_no_narrower():
    values = np.random.default_rng(2).normal(size=20)
    once, twice = (clustered([[value] * n for value in values], generator()) for n in (1, 2))
    apart = clustered([[value] for value in values for _ in range(2)], generator())
    assert once == twice and apart[1] - apart[0] < 0.85 * (once[1] - once[0])


def test_a_single_cluster_has_no_spread():
    assert clustered([[1.0, 2.0, 4.0]], generator()) == (2.0, 2.0)
