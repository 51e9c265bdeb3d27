"""How many rollouts a task gets: the equations, the limiting cases, and that each spends where it is meant to."""

import itertools
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from watched import drawn, group, spent

from gimbal.dataflow.base import Begun, Progress
from gimbal.dataflow.budgets.deepened import Deepened
from gimbal.dataflow.budgets.interval_shared import IntervalShared
from gimbal.dataflow.budgets.shadow_priced import ShadowPriced
from gimbal.dataflow.budgets.token_priced import TokenPriced
from gimbal.dataflow.budgets.until_mixed import UntilMixed
from gimbal.dataflow.curricula.profiled import Profiled
from gimbal.dataflow.filters.profile_only import ProfileOnly
from gimbal.environments.dataset import Rows
from gimbal.ops.allocation import shared
from gimbal.records import Drop, Group

TASKS = Rows(rows=[{"prompt": f"{n}"} for n in range(16)])


def sizes(budget, chances):
    tasks = [TASKS[n] for n in range(len(chances))]
    groups = spent(budget, tasks, lambda task: chances[int(task.prompt)])
    return [len(each.episodes) for each in groups]


def begun(rewards, asked=None, place=0):
    return Begun(group=group(TASKS[place], rewards, place), asked=asked or len(rewards))


# DARS


@pytest.mark.parametrize("right", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("scaled", [False, True])
def test_further_rollouts_bring_the_signal_to_its_target(right, scaled):
    """The sum of |advantages| of N / (4 a (1 - a)) or N / (2 a) rollouts of the same pass rate is the peak's, or 2 (1 - a) of it."""
    first, mean = 16, right / 16
    for treatment in ("equal", "hardness"):
        spec = Deepened(treatment=treatment, most=10_000, scaled=scaled)
        total = first + spec.further(first, mean)
        if mean >= 0.5:
            assert total == first
            continue
        signal = 2 * math.sqrt(mean * (1 - mean)) if scaled else 2 * mean * (1 - mean)
        target = (first if scaled else first / 2) * (1 if treatment == "equal" else 2 * (1 - mean))
        assert total == max(first, math.ceil(target / signal - 1e-9))
        if not scaled:
            closed = first / (4 * mean * (1 - mean)) if treatment == "equal" else first / (2 * mean)
            assert total == math.ceil(closed - 1e-9)


def test_no_success_counts_as_half_of_one_and_the_most_is_the_most():
    assert Deepened(most=10_000).further(8, 0.0) == 8 * 8 - 8, "N / (2 a) with a = 1 / 16"
    assert Deepened(most=32).further(8, 0.0) == 24 and Deepened(most=8).further(8, 0.0) == 0


def test_hard_tasks_alone_are_deepened_and_once():
    found = sizes(Deepened(most=32).start(8, 64), [0.0, 0.15, 0.5, 1.0] * 4)
    assert found[0::4] == [32] * 4 and found[3::4] == [8] * 4
    assert all(size > 8 for size in found[1::4]) and np.mean(found[2::4]) < 16
    assert Deepened(most=32).start(8, 64).more([begun([0] * 8 + [1], asked=9)]) == [0]
    with pytest.raises(ValueError, match=r"Deepened\.most is 4"):
        Deepened(most=4).start(8, 64)


# XRPO


def test_the_priority_by_hand():
    """n 4 and 5, s 1/2: t is 3.1824 with 3 degrees of freedom, 2.7764 with 4."""
    half = [3.18245 * 0.5 / 2, 2.77645 * 0.5 / math.sqrt(5)]
    assert IntervalShared(bonus=0.0).priority(0.5, 4, 8) == pytest.approx(half[0] - half[1], abs=1e-4)
    assert IntervalShared(bonus=2.0).priority(0.0, 4, 8) == pytest.approx(2 * math.sqrt(math.log(9) / 4))


def test_a_round_spends_what_it_has_where_outcomes_differ():
    budget = IntervalShared(bonus=0.0).start(8, 64)
    assert [plan.rollouts for plan in budget.plan([TASKS[0], TASKS[1]])] == [4, 4]
    assert budget.more([begun([1, 1, 1, 1]), begun([1, 0, 1, 0], place=1)]) == [0, 8]
    assert sum(sizes(budget, [0.0, 0.5, 0.3, 1.0])) == 32


def test_equal_deviations_and_a_large_bonus_are_equal_shares():
    two = [begun([1, 0, 1, 0]), begun([0, 1, 0, 1], place=1)]
    assert IntervalShared(bonus=0.0).start(8, 64).more(two) == [4, 4]
    mixed = [begun([1, 1, 1, 1]), begun([0, 1, 0, 1], place=1)]
    assert IntervalShared(bonus=1e6).start(8, 64).more(mixed) == [4, 4]
    assert IntervalShared(first=8).start(8, 64).more([begun([1, 0] * 4)]) == [0]


def test_parts_look_again_in_between_and_the_most_is_the_most():
    budget = IntervalShared(parts=4, bonus=0.0).start(8, 64)
    assert sum(budget.more([begun([1, 1, 1, 1]), begun([1, 0, 1, 0], place=1)])) == 2
    assert sum(sizes(budget, [0.1, 0.5, 0.9])) == 24
    assert max(sizes(IntervalShared(bonus=0.0, most=9).start(8, 64), [0.0, 0.5, 0.0, 0.0])) <= 9


# Until mixed


def test_a_group_ends_once_it_is_mixed():
    budget = UntilMixed(first=2, further=3).start(12, 64)
    assert budget.more([begun([1, 0])]) == [0] and budget.more([begun([0, 0])]) == [3]
    assert budget.more([begun([0] * 11)]) == [1] and budget.more([begun([0] * 12)]) == [0]
    found = sizes(budget, [0.0, 0.5, 1.0])
    assert found[0] == found[2] == 12 and found[1] < 12
    assert sizes(UntilMixed(first=8).start(8, 64), [0.0, 0.5, 1.0]) == [8, 8, 8]


def test_what_ends_on_a_success_has_a_mean_that_is_too_high():
    """As the docstring says: E of the mean is above p for small p."""
    means = []
    budget = UntilMixed(first=2, further=1).start(16, 64)
    for place in range(16):
        for visit in range(8):
            task = replace(TASKS[place], columns={"visit": visit})
            (done,) = spent(budget, [task], lambda task: 0.15)
            means.append(np.mean([episode.earned for episode in done.episodes]))
    assert np.mean(means) > 0.18


# The square-root law


@pytest.mark.parametrize("variances", [(0.25, 0.01, 0.09), (0.2, 0.2, 0.2), (0.25, 0.04, 0.0001)])
def test_the_root_law_is_the_best_of_all_allocations(variances):
    total = 24
    best = min(
        (c for c in itertools.product(range(2, 17), repeat=3) if sum(c) == total),
        key=lambda c: sum(v / n for v, n in zip(variances, c, strict=True)),
    )
    found = shared(np.sqrt(np.array(variances)), total, 2, 16)
    cost = [sum(v / n for v, n in zip(variances, c, strict=True)) for c in (found, best)]
    assert found.sum() == total and cost[0] <= 1.02 * cost[1]


@pytest.mark.parametrize("seed", range(6))
def test_shares_add_up_and_keep_their_bounds(seed):
    rng = np.random.default_rng(seed)
    weight = rng.uniform(0, 1, 9) ** 4 * (rng.random(9) < 0.8)
    for total in (0, 18, 40, 100, 150, 400):
        found = shared(weight, total, 2, 16)
        assert found.sum() == min(max(total, 18), 144) and found.min() >= 2 and found.max() <= 16
        assert (np.diff(found[np.argsort(weight)]) >= -1).all()
    assert shared(np.zeros(4), 32, 2, 16).tolist() == [8] * 4


def seen(budget, chances, visits=6):
    for visit in range(visits):
        budget.step(Progress(version=visit, drawn=0))
        for place, chance in enumerate(chances):
            task = replace(TASKS[place], columns={"visit": visit})
            budget.observe(group(task, drawn(task, chance, 8)))
    return budget


def test_what_varies_gets_more_at_the_same_mean():
    budget = seen(ShadowPriced().start(8, 64), [0.0, 0.5, 1.0, 0.5])
    counts = [plan.rollouts for plan in budget.plan([TASKS[n] for n in range(4)])]
    assert sum(counts) == 32 and min(counts[1], counts[3]) > max(counts[0], counts[2])
    assert [plan.rollouts for plan in budget.plan([TASKS[0]])] == [8], "a round of one"
    for same in (ShadowPriced(bins=1), ShadowPriced(least=8, most=8)):
        budget = seen(same.start(8, 64), [0.0, 0.5, 1.0, 0.5])
        assert [plan.rollouts for plan in budget.plan([TASKS[n] for n in range(4)])] == [8] * 4
    with pytest.raises(ValueError, match="is their mean"):
        ShadowPriced(most=4).start(8, 64)


# Tokens


def test_a_price_keeps_the_tokens_of_a_step_at_their_budget():
    """50 tokens a rollout, 16 tasks: 8 rollouts each would cost 6,400."""
    budget = TokenPriced(tokens=4000, power=0.0).start(8, 64)
    spent_so_far, steps = 0, []
    for version in range(60):
        budget.step(Progress(version=version, drawn=spent_so_far))
        steps.append(50 * sum(plan.rollouts for plan in budget.plan([TASKS[n] for n in range(16)])))
        spent_so_far += steps[-1]
    assert steps[0] == 6400 and np.mean(steps[20:]) == pytest.approx(4000, rel=0.02)
    assert budget.metrics()["TokenPriced/price"] == pytest.approx(0.6, abs=0.1)


def test_without_a_budget_there_is_no_price_and_without_a_power_no_preference():
    plain = seen(TokenPriced(power=0.0).start(8, 64), [0.0, 0.5, 1.0])
    assert [plan.rollouts for plan in plain.plan([TASKS[n] for n in range(3)])] == [8, 8, 8]
    budget = seen(TokenPriced().start(8, 64), [0.0, 0.5, 1.0])
    counts = [plan.rollouts for plan in budget.plan([TASKS[n] for n in range(3)])]
    assert counts[1] == max(counts) and sum(counts) == 24


# sGPO


def profile(spec, chances):
    live = spec.start(Rows(rows=[{"prompt": f"{n}"} for n in range(len(chances))]), 0)
    for chance in chances:
        task = live.next()
        assert task.columns["profile"] and task.columns["num_generations"] == spec.samples
        kept = ProfileOnly()(group(task, [1] * round(chance * spec.samples) + [0] * round((1 - chance) * spec.samples)))
        assert kept == Drop("profile")
        live.observe(group(task, [1] * round(chance * spec.samples) + [0] * round((1 - chance) * spec.samples)))
    return live


def test_a_profile_leaves_out_orders_and_sizes():
    live = profile(Profiled(keep_failed=1.0), [0.0, 0.125, 0.5, 0.875, 1.0, 0.25])
    given = [live.next() for _ in range(10)]
    assert [task.prompt for task in given[:2]] == ["3", "2"] and {task.prompt for task in given[2:5]} == {"0", "1", "5"}
    sizes = {task.prompt: task.columns["num_generations"] for task in given}
    assert sizes == {"3": 2, "2": 2, "5": 4, "1": 8, "0": 32}
    assert sorted(task.prompt for task in given[5:]) == list("01235"), "and again, in another order"
    assert isinstance(ProfileOnly()(group(given[0], [1, 0])), Group)


def test_failed_tasks_are_thinned_out():
    live = profile(Profiled(keep_failed=0.25), [0.0] * 60 + [0.5] * 4)
    kept = {live.next().prompt for _ in range(64)}
    assert {str(n) for n in range(60, 64)} <= kept and 0.1 < (len(kept) - 4) / 60 < 0.4


def test_equal_profiles_are_one_size_and_all_of_it():
    live = profile(Profiled(), [0.25] * 8)
    given = [live.next() for _ in range(8)]
    assert {task.columns["num_generations"] for task in given} == {4} and len({task.id for task in given}) == 8


@pytest.mark.parametrize(
    "make",
    [
        lambda: Deepened(treatment="hard"),
        lambda: IntervalShared(first=1),
        lambda: UntilMixed(first=1),
        lambda: ShadowPriced(least=1),
        lambda: TokenPriced(tokens=-1),
        lambda: Profiled(least=9, most=3),
    ],
)
def test_what_cannot_be_is_said(make):
    with pytest.raises(ValueError):
        make()
