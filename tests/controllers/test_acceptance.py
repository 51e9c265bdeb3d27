"""Adaptive DAPO: the rule by hand, the staleness bound with it, and what it saves in a pipeline that drops groups."""

import json
import random
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))
from small import small_run

from gimbal.controllers.acceptance import Acceptance
from gimbal.dataflow.base import AbstractFilter
from gimbal.dataflow.staleness import Pace
from gimbal.records import Drop
from gimbal.runtime.local import Trainer


def walk(rule, signals):
    state = rule.init()
    for signal in signals:
        state = json.loads(json.dumps(rule.update(state, {"kept_frac": signal})))
    return state["value"]


def test_reduces_to_as_many_as_wanted_where_all_are_kept():
    assert walk(Acceptance(margin=0.0), [1.0] * 5) == 1.0 and Acceptance().init()["value"] == 1.0


def test_reduces_to_the_right_multiplier_where_the_rate_is_constant():
    assert walk(Acceptance(margin=0.0), [0.4] * 7) == pytest.approx(2.5, abs=1e-12)
    assert Pace().start(0, 8).wanted(0, 0, 2.5) == 20


def test_the_average_by_hand():
    assert walk(Acceptance(), [0.5, 1.0]) == pytest.approx(1.1 / 0.55)
    assert walk(Acceptance(decay=0.0), [0.5, 1.0]) == pytest.approx(1.1)


def test_it_stays_within_its_bounds():
    rule = Acceptance(margin=0.2, least=0.25)
    assert walk(rule, [0.0] * 50) == rule.high == pytest.approx(4.8) and walk(rule, [7.0]) == pytest.approx(1.2)
    with pytest.raises(KeyError, match="kept_frac"):
        rule.update(rule.init(), {})
    for wrong in ({"decay": 1.0}, {"margin": -0.1}, {"least": 0.0}):
        with pytest.raises(ValueError, match="Acceptance"):
            Acceptance(**wrong)


def test_wanted_is_room_at_a_factor_of_1():
    pace = Pace().start(2, 5)
    for stored in range(16):
        for flying in range(16):
            assert pace.wanted(stored, flying, 1.0) == pace.room(stored + flying)
    assert pace.wanted(5, 0, 1.1) == 11  # 10 places, and no more by rounding


@settings(max_examples=150, deadline=None)
@given(
    k=st.integers(0, 4),
    batch=st.integers(1, 4),
    factor=st.floats(1, 6),
    kept=st.floats(0.1, 1),
    seed=st.integers(0, 2**32),
)
def test_no_group_is_older_than_k_and_nobody_waits_for_ever(k, batch, factor, kept, seed):
    """As for the bound itself: groups finish in any order, some are dropped, and more are asked for than wanted."""
    draw = random.Random(seed)
    pace, version, dispatched = Pace().start(k, batch), 0, 0
    flying: dict[int, int] = {}
    stored: dict[int, int] = {}
    ages = []
    while version < 20:
        for _ in range(pace.wanted(len(stored), len(flying), factor)):
            flying[dispatched] = version
            dispatched += 1
        taken = sorted(stored)[:batch]
        remaining = [v for i, v in (flying | stored).items() if i not in taken]
        may = len(taken) == batch and pace.may_step(version, remaining)
        assert may or flying
        if may and (not flying or draw.random() < 0.5):
            ages += [version - stored.pop(i) for i in taken]
            version += 1
            continue
        index = draw.choice(sorted(flying))
        age = flying.pop(index)
        if draw.random() < kept:
            stored[index] = age
            if len(stored) > pace.capacity:
                del stored[max(stored)]
    assert max(ages) <= k


@dataclass(frozen=True, kw_only=True)
class EveryThird(AbstractFilter):
    """Keeps one group of three, by its number."""

    def __call__(self, group):
        return group if group.index % 3 == 0 else Drop("other")


def rounds(trainer):
    """Calls of the engine for one batch, a stand-in for the time on a device with room for all."""
    calls, step = [0], trainer.engine.step
    trainer.engine.step = lambda: (calls.__setitem__(0, calls[0] + 1), step())[1]
    trainer.pipeline.next_batch(0)
    return calls[0]


def test_asking_at_once_takes_one_round_and_wastes_nothing(single_thread):
    def trainer(factor):
        made = Trainer(small_run(filters=(EveryThird(),), max_staleness=0, prompts_per_step=2, num_generations=2))
        made.begin()
        made.pipeline.oversampling = factor
        return made

    one, three = trainer(1.0), trainer(3.0)
    assert rounds(three) < rounds(one)
    assert three.pipeline.kept_frac == pytest.approx(1 / 3) and three.pipeline.drops["surplus"] == 0
    assert three.pipeline.dispatched == 6


def test_surplus_is_dropped_from_the_end_and_counted_apart(single_thread):
    trainer = Trainer(small_run(max_staleness=0, prompts_per_step=2, oversampling=2.0))
    _, groups, _ = trainer.advance()
    assert [group.index for group in groups] == [0, 1] and trainer.pipeline.drops["surplus"] == 2
    assert trainer.pipeline.kept_frac == 1.0


def test_surplus_within_the_bound_trains_in_the_next_step(single_thread):
    trainer = Trainer(small_run(max_staleness=1, prompts_per_step=2, oversampling=1.5))
    kept = [trainer.advance()[1] for _ in range(2)]
    assert [group.index for group in kept[1]] == [2, 3] and [group.index for group in kept[0]] == [0, 1]
    assert trainer.pipeline.drops["surplus"] == 3  # two of the first six, and one of the three asked for 2 places


def test_the_controller_moves_the_run(single_thread):
    run = small_run(filters=(EveryThird(),), controllers={"oversampling": Acceptance(margin=0.0)}, num_generations=2)
    trainer = Trainer(run)
    metrics = trainer.advance()[0]
    assert metrics["control/oversampling"] == pytest.approx(1 / metrics["kept_frac"]) and metrics["kept_frac"] == 0.5
    trainer.advance()
    assert trainer.pipeline.oversampling == metrics["control/oversampling"]


def test_a_factor_of_1_is_the_run_without_it_to_the_bit(single_thread):
    plain, ruled = small_run(), small_run(controllers={"oversampling": Acceptance(margin=0.0)})
    a, b = Trainer(plain), Trainer(ruled)
    for _ in range(2):
        a.advance(), b.advance()
    for x, y in zip(a.learner.policy.parameters(), b.learner.policy.parameters(), strict=True):
        assert torch.equal(x, y)


def test_oversampling_below_1_is_refused():
    with pytest.raises(ValueError, match="oversampling"):
        replace(small_run(), oversampling=0.5)
