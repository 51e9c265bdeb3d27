"""Batches under deadlines: the rule by hand and against every batch, its limits, and the clock's laws."""

import math
import random
from itertools import combinations

import pytest

from gimbal.runtime.simulate.streams import DeadlineBatch, FirstCome, Frame, LiveStream, PassTime, serve

SECONDS = PassTime(step_s=0.004, frame_s=0.001)


def frames(*told):
    """(seconds until it is due, passes left) each, asked for in this order."""
    return [Frame(asked=0.0, due=due, left=left) for due, left in told]


def test_infinite_deadlines_are_batched_for_throughput():
    waiting = frames(*[(math.inf, 4)] * 9)
    assert sorted(DeadlineBatch()(waiting, 0.0, SECONDS)) == list(range(9))
    assert FirstCome(most=9, hopeful=True)(waiting, 0.0, SECONDS) == FirstCome(most=9)(waiting, 0.0, SECONDS)


def test_equal_patience_takes_the_largest_batch_that_fits():
    waiting = frames(*[(0.0401, 4)] * 20)  # ten milliseconds a pass
    assert len(DeadlineBatch(safety=1.0)(waiting, 0.0, SECONDS)) == 6  # L(6) = 10 ms
    assert len(DeadlineBatch(safety=0.9)(waiting, 0.0, SECONDS)) == 5  # L(5) = 9 ms
    assert len(DeadlineBatch(safety=1.0)(waiting, 0.02, SECONDS)) == 1  # 5 ms = L(1)


def test_what_cannot_be_in_time_takes_no_pass():
    assert DeadlineBatch()(frames((0.019, 4)), 0.0, SECONDS) == []
    assert DeadlineBatch()(frames((0.02, 4)), 0.0, SECONDS) == [0], "alone, without the margin"
    assert DeadlineBatch()(frames((0.019, 4), (0.4, 4), (0.5, 4)), 0.0, SECONDS) == [2, 1]


def test_one_frame_in_a_hurry_does_not_make_the_batch_small():
    waiting = frames((0.022, 4), *[(0.2, 4)] * 8)  # 5.5 ms a pass; the others 50
    assert 0 not in DeadlineBatch()(waiting, 0.0, SECONDS) and len(DeadlineBatch()(waiting, 0.0, SECONDS)) == 8
    assert 0 in DeadlineBatch()(frames((0.06, 4), (0.2, 4), (0.2, 4)), 0.0, SECONDS)


def test_the_size_is_the_largest_of_all_batches_that_suit_their_own_frames():
    rng = random.Random(0)
    for _ in range(100):
        waiting = frames(*[(rng.uniform(0.0, 0.08), rng.randint(1, 4)) for _ in range(8)])
        suits = [
            len(batch)
            for size in range(1, 9)
            for batch in combinations(range(8), size)
            if all(0.9 * waiting[i].patience(0.0) >= SECONDS(size) for i in batch)
        ]
        chosen = DeadlineBatch()(waiting, 0.0, SECONDS)
        if suits:
            assert len(chosen) == len(set(chosen)) == max(suits)
            assert all(0.9 * waiting[i].patience(0.0) >= SECONDS(len(chosen)) for i in chosen)
        else:
            assert len(chosen) <= 1


def test_hopeful_frames_come_first():
    waiting = frames((0.03, 4), (0.05, 4), (0.06, 4))
    assert FirstCome(most=2)(waiting, 0.0, SECONDS) == [0, 1]
    assert FirstCome(most=8, hopeful=True)(waiting, 0.0, SECONDS) == [0, 1, 2], "three wait: 7 ms, and 7.5 to spend"
    assert FirstCome(most=2, hopeful=True)(waiting, 0.011, SECONDS) == [1, 2], "4.75 ms a pass are too few for 6"


def test_one_stream_alone_is_served_in_its_own_time():
    steady = LiveStream(period_s=0.1, deadline_s=0.03, off_s=0.0)
    for batching in (FirstCome(most=1), FirstCome(most=8, hopeful=True), DeadlineBatch()):
        done = serve([steady], batching, passes=4, seconds=20.0, pass_time=SECONDS)
        assert done.in_time == 1 and done.batch == 1 and done.wasted == 0
        assert done.busy == pytest.approx(done.asked * 4 * SECONDS(1) / 20, rel=1e-3)
    late = serve([steady], DeadlineBatch(), passes=7, seconds=20.0, pass_time=SECONDS)
    assert late.in_time == 0 and late.batch == 0, "35 ms of passes, due in 30"
    assert serve([steady], FirstCome(), passes=7, seconds=20.0, pass_time=SECONDS).wasted == 1


def test_no_rule_serves_more_than_the_server_can():
    many = [LiveStream(deadline_s=0.06 if n % 2 else 0.3) for n in range(60)]
    for batching in (FirstCome(most=8), FirstCome(most=8, hopeful=True), DeadlineBatch()):
        done = serve(many, batching, seconds=5.0, seed=3)
        assert done.frames_per_s <= 1 / (4 * PassTime().frame_s) and 0 < done.in_time < 1 and done.busy <= 1.01
        assert done == serve(many, batching, seconds=5.0, seed=3), "the same for the same arguments"
    assert len({serve(many, rule, seconds=5.0, seed=3).asked for rule in (FirstCome(), DeadlineBatch())}) == 1


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: DeadlineBatch(safety=0.0), "safety is 0.0; it must be a share above 0, at most 1"),
        (lambda: FirstCome(most=0), "most is 0; it must be at least 1"),
        (lambda: PassTime(frame_s=0.0), "frame_s above 0"),
        (lambda: LiveStream(period_s=0.0), "seconds must be above 0"),
        (lambda: serve([], FirstCome()), "0 streams"),
    ],
)
def test_settings_that_serve_nothing_are_refused(wrong, told):
    with pytest.raises(ValueError, match=told):
        wrong()
