"""The bound of docs/staleness.md: hypothesis drives the two sides in any order and looks for one group that is too old."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from gimbal.dataflow.staleness import Pace


@settings(max_examples=300, deadline=None)
@given(
    k=st.integers(0, 5),
    batch=st.integers(1, 4),
    steps=st.integers(1, 40),
    seed=st.integers(0, 2**32),
)
def test_no_group_is_ever_older_than_k_and_the_learner_never_waits_for_ever(k, batch, steps, seed):
    """Groups finish in any order, some are dropped; consumption is by order of dispatch among the finished."""
    draw = random.Random(seed)
    pace, version, dispatched = Pace(max_staleness=k, groups_per_step=batch), 0, 0
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
    pace = Pace(max_staleness=0, groups_per_step=4)
    assert pace.room(0) == 4 and pace.room(3) == 1 and pace.room(4) == 0
    assert pace.may_step(7, []) and not pace.may_step(7, [7])


def test_the_deadlines_by_hand():
    pace = Pace(max_staleness=2, groups_per_step=2)
    assert pace.may_step(5, [4, 4, 5, 5])  # consumed at 6, 6, 7, 7: ages 2, 2, 2, 2
    assert not pace.may_step(5, [4, 4, 4])  # the third would be consumed at 7, at age 3
    assert not pace.may_step(5, [3])  # it must be in this batch


def test_the_bound_is_reached():
    pace, version, stored, ages = Pace(max_staleness=3, groups_per_step=1), 0, [], []
    for _ in range(10):
        stored += [version] * pace.room(len(stored))  # as far ahead as admission allows
        ages.append(version - stored.pop(0))
        version += 1
    assert max(ages) == ages[-1] == 3
