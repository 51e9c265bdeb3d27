"""The bound of docs/staleness.md: hypothesis drives the two sides in any order and looks for one decision that is too old.

And what each rule makes of rollouts that take long: what is trained on against what was sampled.
"""

import random
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "runtime")]
from small import small_run
from uneven import Schedule

from gimbal.dataflow.staleness import DropStale, MaskStale, Pace, Reweight, Wait, Withhold
from gimbal.engines.native import Native
from gimbal.objectives import TruncatedWeight
from gimbal.runtime.local import Trainer

PATIENT = (Pace, Wait, Withhold)
BOUNDED = (*PATIENT, DropStale, MaskStale)
RULES = (*BOUNDED, Reweight)


@settings(max_examples=300, deadline=None)
@given(
    k=st.integers(0, 5),
    batch=st.integers(1, 4),
    steps=st.integers(1, 40),
    seed=st.integers(0, 2**32),
    admission=st.none() | st.integers(0, 5),
)
def test_no_group_is_ever_older_than_k_and_the_learner_never_waits_for_ever(k, batch, steps, seed, admission):
    """Groups finish in any order, some are dropped; consumption is by order of dispatch among the finished."""
    draw = random.Random(seed)
    pace, version, dispatched = Pace(admission=admission).start(k, batch), 0, 0
    flying: dict[int, int] = {}  # index -> version at dispatch
    stored: dict[int, int] = {}
    ages = []
    while version < steps:
        room = pace.room(len(flying) + len(stored))
        for _ in range(draw.randint(0, room) if flying or len(stored) >= batch else room):
            flying[dispatched] = version
            dispatched += 1
        taken = sorted(stored)[:batch]
        remaining = [v for i, v in (flying | stored).items() if i not in taken]
        may = len(taken) == batch and pace.may_step(version, remaining)
        if may and (not flying or draw.random() < 0.5):
            ages += [version - stored.pop(i) for i in taken]
            version += 1
        elif flying:
            index = draw.choice(sorted(flying))
            if draw.random() < 0.9:
                stored[index] = flying[index]
            del flying[index]
        else:
            # Nothing is in flight: either the learner may step, or there is room to dispatch. Else it would wait for ever.
            assert may or pace.room(len(stored)) > 0
            if not may:
                assert len(stored) < batch
    assert max(ages) <= k


def test_staleness_0_dispatches_a_batch_and_waits_for_all_of_it():
    pace = Pace().start(0, 4)
    assert pace.room(0) == 4 and pace.room(3) == 1 and pace.room(4) == 0
    assert pace.may_step(7, []) and not pace.may_step(7, [7])


def test_the_deadlines_by_hand():
    pace = Pace().start(2, 2)
    assert pace.may_step(5, [4, 4, 5, 5])  # consumed at 6, 6, 7, 7: ages 2, 2, 2, 2
    assert not pace.may_step(5, [4, 4, 4])  # the third would be consumed at 7, at age 3
    assert not pace.may_step(5, [3])  # it must be in this batch


def test_the_bound_is_reached():
    pace, version, stored, ages = Pace().start(3, 1), 0, [], []
    for _ in range(10):
        stored += [version] * pace.room(len(stored))  # as far ahead as admission allows
        ages.append(version - stored.pop(0))
        version += 1
    assert max(ages) == ages[-1] == 3


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    rule=st.sampled_from(BOUNDED),
    k=st.integers(0, 3),
    batch=st.integers(1, 3),
    seed=st.integers(0, 2**32),
    slots=st.sampled_from([1, 3, 1000]),
    held_up=st.sampled_from([0.0, 0.6]),
    share=st.sampled_from([0.0, 0.4]),
    oversampling=st.sampled_from([1.0, 1.7]),
    ahead=st.sampled_from(["ready", "full"]),
    admission=st.none() | st.integers(0, 2),
)
def test_no_rule_with_a_bound_ever_trains_on_an_older_decision(
    rule, k, batch, seed, slots, held_up, share, oversampling, ahead, admission
):
    """Real pipelines, random delays, drops and oversampling; nothing deadlocks, and no group is lost or used twice."""
    schedule = Schedule(
        rule(admission=admission).start(k, batch),
        steps=6,
        seed=seed,
        slots=slots,
        held_up=held_up,
        share=share,
        oversampling=oversampling,
        ahead=ahead,
    )
    assert schedule.oldest <= k
    pipeline, trained = schedule.pipeline, schedule.trained
    assert all(len(chosen) == batch for chosen in schedule.batches)
    assert len(set(trained)) == len(trained) and not set(trained) & set(pipeline.outstanding)
    dropped = sum(count for reason, count in pipeline.drops.items())
    assert len(trained) + len(pipeline.outstanding) + dropped == pipeline.dispatched
    if rule in PATIENT:
        assert pipeline.drops["stale"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_staleness_0_is_the_synchronous_run_under_every_rule(seed):
    runs = [Schedule(rule().start(0, 3), steps=6, seed=seed, slots=4, held_up=0.5) for rule in RULES]
    assert all(run.batches == [[3 * step + i for i in range(3)] for step in range(6)] for run in runs)
    assert all(run.oldest == 0 and run.pipeline.drops.total() == 0 for run in runs)


@pytest.mark.parametrize("rule", RULES)
def test_an_admission_of_0_is_synchronous_and_of_k_what_there_is_without_it(rule):
    def run(k, admission):
        pace = rule(admission=admission).start(k, 3)
        schedule = Schedule(pace, steps=6, seed=0, slots=4, held_up=0.5)
        return schedule.batches, [age_K.tolist() for age_K in schedule.ages]

    assert run(3, 0) == run(0, None) and run(3, 0)[0] == [[3 * step + i for i in range(3)] for step in range(6)]
    assert run(3, 3) == run(3, None)


def test_admission_limits_what_waits_and_leaves_a_long_rollout_its_k_versions():
    pace = Pace(admission=1).start(4, 2)
    assert (pace.room(0), pace.room(4), pace.capacity) == (4, 0, 4)
    assert pace.may_step(9, [6]) and not pace.may_step(9, [5])
    wide, narrow, tight = (
        Schedule(Pace(admission=a).start(k, 2), steps=60, seed=1) for k, a in ((6, None), (6, 1), (1, None))
    )
    ages = [float(torch.cat(run.ages).float().mean()) for run in (wide, narrow, tight)]
    assert 1 < narrow.oldest <= 6 and tight.oldest == 1 and ages[1] < 0.5 * ages[0]
    assert not narrow.pipeline.drops


@pytest.mark.slow
def test_reweight_gives_the_bound_up_and_the_others_reach_it():
    oldest = {rule: Schedule(rule().start(2, 2), steps=40, seed=1).oldest for rule in RULES}
    assert oldest.pop(Reweight) > 2
    assert set(oldest.values()) == {2}


def test_who_waits_for_a_long_rollout():
    """Pace trains on what is ready, Wait on the order of dispatch, Withhold wave by wave."""
    pace, wait, withhold = (Schedule(rule().start(3, 2), steps=30, seed=2) for rule in (Pace, Wait, Withhold))
    assert wait.trained == sorted(wait.trained) == list(range(60))
    assert pace.trained != sorted(pace.trained)
    waves = [{index // 8 for index in batch} for batch in withhold.batches]
    assert all(len(wave) == 1 for wave in waves) and withhold.trained != sorted(withhold.trained)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rule", PATIENT)
def test_pacing_selects_nothing(rule, seed):
    """What was trained on is what was sampled: every group, so every mean, exactly; all that is left out is still under way."""
    schedule = Schedule(rule().start(1, 2), steps=50, seed=seed)
    pipeline = schedule.pipeline
    assert sorted([*schedule.trained, *pipeline.outstanding]) == list(range(pipeline.dispatched))
    assert len(pipeline.outstanding) <= pipeline.staleness.capacity and not pipeline.drops
    metrics = pipeline.selection.metrics()
    for quantity in ("length", "success", "difficulty", "latency"):
        assert metrics[f"selection/trained/{quantity}"] == metrics[f"selection/sampled/{quantity}"]
    assert not [name for name in metrics if name.startswith("selection/lost")]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_dropping_selects_short_rollouts_easy_tasks_and_quick_ones(seed):
    """The same work as above. The shift of each mean is held against what chance would do to a random sample of that size."""
    schedule = Schedule(DropStale().start(1, 2), steps=150, seed=seed)
    metrics, stale = schedule.pipeline.selection.metrics(), schedule.pipeline.drops["stale"]
    shift = {q: metrics[f"selection/trained/{q}"] - metrics[f"selection/sampled/{q}"] for q in ("length", "success")}
    lost = metrics["selection/lost/stale"]
    assert stale > 30 and lost == pytest.approx(stale / (stale + 300))
    chance = 13.4 * (lost / (1 - lost) / (2 * (300 + stale))) ** 0.5  # 13.4: deviation of the lengths
    assert shift["length"] < -5 * chance and shift["length"] < -0.2 * metrics["selection/sampled/length"]
    assert shift["success"] > 0.05
    assert metrics["selection/trained/difficulty"] < metrics["selection/sampled/difficulty"] - 0.05
    assert metrics["selection/trained/latency"] < metrics["selection/sampled/latency"]


@pytest.mark.slow
def test_masking_trains_on_every_long_rollout_but_not_on_how_it_began():
    schedule = Schedule(MaskStale().start(1, 2), steps=100, seed=0)
    unmasked = Schedule(Reweight().start(1, 2), steps=100, seed=0)
    assert schedule.batches == unmasked.batches and schedule.pipeline.drops["stale"] == 0
    kept, drawn = (sum(len(age_K) for age_K in run.ages) for run in (schedule, unmasked))
    young = sum(int((age_K <= 1).sum()) for age_K in unmasked.ages)
    assert kept == young < 0.8 * drawn


def test_the_books_are_resumed():
    schedule = Schedule(DropStale().start(1, 2), steps=20, seed=3)
    again = Schedule(DropStale().start(1, 2), steps=0, seed=3)
    again.pipeline.selection.load_state_dict(schedule.pipeline.selection.state_dict())
    assert again.pipeline.selection.metrics() == schedule.pipeline.selection.metrics() != {}
    assert again.pipeline.selection.began == schedule.pipeline.selection.began != {}


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_real_runs_keep_what_their_rule_promises(rule, single_thread):
    run = small_run(
        staleness=rule(), max_staleness=1, engine=Native(slots=3, precision="float32"), correction=TruncatedWeight()
    )
    trainer = Trainer(run)
    ages = [trainer.advance()[0]["staleness/max"] for _ in range(4)]
    assert max(ages) <= 1 or not rule.bounded


def test_admission_is_at_most_the_bound_of_the_run():
    for admission in (-1, 3):
        with pytest.raises(ValueError, match="0 to max_staleness versions ahead"):
            small_run(max_staleness=2, staleness=Pace(admission=admission))
