"""Statistics over seeds: by hand, against scipy and rliable where they are installed, and by how often intervals hold the truth."""

import math

import numpy as np
import pytest

from gimbal.report import statistics as st

INF = math.inf


def column(*values):
    return np.array(values, dtype=float)[:, None]


def generator(seed=0):
    return np.random.default_rng(seed)


def test_interquartile_mean_by_hand():
    assert st.interquartile_mean(column(0, 1, 2, 100)) == 1.5  # one of four is cut off at either end
    assert st.interquartile_mean(column(5, 1, 9, 2, 100)) == pytest.approx(16 / 3)  # of five, one
    assert st.interquartile_mean(column(1, 2, 9)) == 4  # of three, none
    assert st.interquartile_mean(np.array([[0.0, 4], [2, 6]])) == 3  # runs and tasks are one pool
    assert st.interquartile_mean(np.stack([column(1, 2, 3, 4), column(5, 6, 7, 8)])).tolist() == [2.5, 6.5]


def test_interquartile_mean_is_infinite_only_with_more_than_a_quarter_of_the_runs():
    assert math.isfinite(st.interquartile_mean(column(1, 2, 3, INF)))
    assert st.interquartile_mean(column(1, 2, INF, INF)) == INF


def test_improvement_by_hand():
    assert st.improvement(column(1, 3), column(2, 3)) == (0 + 0 + 1 + 0.5) / 4
    assert st.improvement(column(1, 3), column(0)) == 1.0
    two_tasks = np.array([[1.0, 0.0], [3.0, 0.0]])
    assert st.improvement(two_tasks, np.array([[0.0, 0.0]])) == 0.75  # 1 in one task, equal in the other
    assert st.improvement(column(1, 3), column(2, 3)) == 1 - st.improvement(column(2, 3), column(1, 3))


def test_profile_by_hand():
    assert st.profile(np.array([[0.2, 0.4], [0.6, 0.8]]), np.array([0.0, 0.2, 0.5, 0.8])).tolist() == [1, 0.75, 0.5, 0]


def test_resampling_stays_within_each_task():
    score_RT = np.array([[1.0, 10], [2, 20], [3, 30]])
    drawn_BRT = st.resample(score_RT, 500, generator())
    assert set(np.unique(drawn_BRT[..., 0])) == {1, 2, 3} and set(np.unique(drawn_BRT[..., 1])) == {10, 20, 30}
    assert not np.array_equal(drawn_BRT[..., 0] * 10, drawn_BRT[..., 1])  # each task draws its own runs
    assert np.array_equal(drawn_BRT, st.resample(score_RT, 500, generator()))


def test_one_run_has_no_interval():
    assert st.interval(st.interquartile_mean, [column(0.5)], generator()) is None
    assert st.interval(st.improvement, [column(1, 2), column(0.5)], generator()) is None


def test_interval_of_a_mean_is_that_of_theory():
    x = generator(3).normal(size=(400, 1))
    low, high = st.interval(lambda x_BRT: x_BRT.mean((-1, -2)), [x], generator())
    half = 1.96 * x.std() / 20
    assert (low, high) == pytest.approx((x.mean() - half, x.mean() + half), abs=0.01)


def test_time_to_by_hand():
    value, clock = np.array([0.1, 0.9, 0.5, 0.9, 1.0]), np.array([10.0, 20, 30, 40, 50])
    assert st.time_to(value, clock, 0.9) == 20
    assert st.time_to(value, clock, 0.9, window=2) == 50  # the first two in a row whose mean is 0.9
    assert st.time_to(value, clock, 0.7, window=2) == 30
    assert st.time_to(value, clock, 1.1) == INF
    assert st.time_to(value[:3], clock[:3], 0.0, window=4) == INF
    assert st.time_to(np.array([np.nan, 0.9]), clock[:2], 0.5) == 20


def test_censored_by_hand():
    # The third ended at 60 and had not arrived: whoever came at 80 may not have been faster.
    assert st.censored([50.0, 80.0, INF], [90.0, 90.0, 60.0]) == ([50, INF, INF], 60)
    assert st.censored([50.0, 80.0], [90.0, 90.0]) == ([50, 80], INF)


def test_time_ratio_by_hand():
    assert st.time_ratio(column(10, 10), column(20, 20)) == pytest.approx(0.5)
    both = st.time_ratio(np.array([[10.0, 30]]), np.array([[20.0, 15]]))
    assert both == pytest.approx(1.0)  # half and twice: the geometric mean
    assert st.time_ratio(column(10, 10), column(INF, INF)) == 0
    assert st.time_ratio(column(INF, 10), column(10, 10)) == INF
    assert np.isnan(st.time_ratio(column(INF), column(INF)))


def test_what_cannot_be_told_widens_the_interval_to_both_sides():
    assert st.percentiles(np.array([1.0, np.nan, 1.0, 1.0])) == (-INF, INF)


def test_permutation_p_by_hand():
    # Of C(8, 4) = 70 deals, only the one at hand and its mirror image are as far apart.
    assert st.permutation_p(column(1, 2, 3, 4), column(5, 6, 7, 8), generator()) == pytest.approx(2 / 70)
    assert st.permutation_p(column(1, 2, 3), column(7, 8, 9), generator()) == pytest.approx(2 / 20)
    assert st.permutation_p(column(1, 1), column(1, 1), generator()) == 1.0
    assert st.permutation_p(column(INF, INF), column(INF, INF), generator()) == 1.0
    never = st.permutation_p(column(1, 2, 3, 4), column(INF, INF, INF, INF), generator())
    assert never == pytest.approx(2 / 70)


def test_permutation_p_deals_each_task_anew():
    x, y = np.tile(column(1, 2, 3), 3), np.tile(column(7, 8, 9), 3)
    assert st.permutation_p(x, y, generator()) < 0.01  # three tasks say what one of three runs cannot
    mixed = np.concatenate([x[:, :1], y[:, :1]], axis=1)
    assert st.permutation_p(mixed, mixed[:, ::-1].copy(), generator()) > 0.9  # task means are not compared


def test_permutation_p_keeps_its_level_and_has_power():
    draws = generator(5)
    same = [st.permutation_p(draws.normal(size=(5, 1)), draws.normal(size=(5, 1)), draws) for _ in range(300)]
    assert np.mean(np.array(same) <= 0.05) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)
    apart = [st.permutation_p(draws.normal(size=(5, 1)) + 3, draws.normal(size=(5, 1)), draws) for _ in range(60)]
    assert np.mean(np.array(apart) <= 0.05) > 0.8


@pytest.mark.parametrize(("runs", "least", "most"), [(3, 0.65, 0.85), (10, 0.90, 0.98), (30, 0.92, 0.98)])
def test_coverage_is_what_the_page_says(runs, least, most):
    """Of the truth by nominal 95 % intervals: near it from 10 runs on, and far below with 3, which docs/compare.md admits."""
    draws, held = generator(runs), 0
    for _ in range(400):
        low, high = st.interval(st.interquartile_mean, [draws.normal(size=(runs, 1))], draws, count=400)
        held += low <= 0 <= high
    assert least < held / 400 < most


def test_interquartile_mean_is_scipys():
    stats = pytest.importorskip("scipy.stats")
    for shape in [(3, 1), (5, 2), (7, 3), (10, 26)]:
        x = generator().normal(size=shape)
        assert st.interquartile_mean(x) == pytest.approx(stats.trim_mean(x, 0.25, axis=None))


def test_permutation_p_is_scipys_exact_mann_whitney():
    stats = pytest.importorskip("scipy.stats")
    for seed in range(5):
        x, y = generator(seed).normal(size=(5, 1)), generator(seed + 9).normal(size=(6, 1)) + seed / 2
        theirs = stats.mannwhitneyu(x[:, 0], y[:, 0], method="exact").pvalue
        assert st.permutation_p(x, y, generator()) == pytest.approx(theirs)
        drawn = st.permutation_p(x, y, generator(), most=100)  # fewer than the 462 deals that there are
        assert drawn == pytest.approx(theirs, abs=0.15)


def test_improvement_and_intervals_are_rliables():
    """rliable 1.2.0 imports only beside an older pandas; see CONTRIBUTING.md."""
    try:
        from rliable import library, metrics
    except (ImportError, TypeError):
        pytest.skip("rliable is not installed, or not importable")
    x, y, tau = generator(1).random((6, 3)), generator(2).random((4, 3)), np.linspace(0, 1, 5)
    assert st.improvement(x, y) == pytest.approx(metrics.probability_of_improvement(x, y))
    for ours, arms, theirs in [
        (st.interquartile_mean, [x], lambda a: np.array([metrics.aggregate_iqm(a)])),
        (st.improvement, [x, y], lambda a, b: np.array([metrics.probability_of_improvement(a, b)])),
    ]:
        given = {"a": arms[0] if len(arms) == 1 else arms}
        ends = library.get_interval_estimates(given, theirs, reps=4000)[1]["a"][:, 0]
        assert st.interval(ours, arms, generator(), count=4000) == pytest.approx(tuple(ends), abs=0.02)
    assert st.profile(x, tau) == pytest.approx(library.score_distributions(x, tau))


def test_strengths_are_the_maximum_of_the_likelihood_of_their_wins():
    normal = generator(3).normal
    arms = [normal(mean, 1.0, (7, 2)) for mean in (0.0, 0.4, 0.5, 1.5)]
    win_AA = st.wins(arms)
    assert win_AA + win_AA.T == pytest.approx(8 * (1 - np.eye(4)))  # seven runs and one game that is drawn
    strength_A = st.strengths(win_AA)
    assert strength_A.mean() == pytest.approx(0, abs=1e-9) and (np.diff(strength_A) > 0)[-1]
    expected_AA = 8 / (1 + np.exp(strength_A[None, :] - strength_A[:, None])) * (1 - np.eye(4))
    assert expected_AA.sum(1) == pytest.approx(win_AA.sum(1), abs=1e-6)  # the likelihood's gradient is 0


def test_strengths_of_games_as_the_model_has_them_are_its_own():
    true_A = np.array([-1.0, 0.2, 0.8])
    chance_AA = 1 / (1 + np.exp(true_A[None, :] - true_A[:, None])) * (1 - np.eye(3))
    assert st.strengths(chance_AA) == pytest.approx(true_A, abs=1e-6)
    assert st.strengths(np.stack([chance_AA, chance_AA.T])) == pytest.approx(np.stack([true_A, -true_A]), abs=1e-6)


def test_two_arms_differ_by_the_log_of_their_wins_and_one_that_always_wins_is_finite():
    strength_A = st.strengths(st.wins([np.full((5, 1), 1.0), np.zeros((5, 1))]))
    assert strength_A[0] - strength_A[1] == pytest.approx(math.log(5.5 / 0.5))
    ladder_RT = [np.full((200, 1), float(place)) for place in range(10)]  # each always beats those below it
    rungs_A, win_AA = st.strengths(st.wins(ladder_RT)), st.wins(ladder_RT)
    assert rungs_A == pytest.approx(-rungs_A[::-1], abs=1e-7)
    expected_AA = 201 / (1 + np.exp(rungs_A[None, :] - rungs_A[:, None])) * (1 - np.eye(10))
    assert expected_AA.sum(1) == pytest.approx(win_AA.sum(1), abs=1e-6)
    circle_AA = np.array([[0.0, 5.5, 0.5], [0.5, 0.0, 5.5], [5.5, 0.5, 0.0]])
    assert st.strengths(circle_AA) == pytest.approx(np.zeros(3), abs=1e-9)
