"""The price of length, and the filter that leaves it out, both ways of DAPO."""

from dataclasses import replace

import made
import pytest

from gimbal.dataflow.filters.overlong import DropOverlong
from gimbal.policies.token import Tokens
from gimbal.records import Drop, Group, Task
from gimbal.rewards.overlong import OverlongPenalty


def group(*lengths, stop=None):
    task = Task(id="t")
    rollouts = [
        made.rollout(task=task, sample=i, decisions=Tokens.row([1], [2] * length), stop=stop[i] if stop else "stop")
        for i, length in enumerate(lengths)
    ]
    return Group.of(0, task, rollouts)


def test_what_the_task_gave_is_no_length():
    given = Group.of(0, Task(id="t"), [replace(group(16).rollouts[0], given=3)])
    assert OverlongPenalty(limit=13, zone=0)(given) == [0] and OverlongPenalty(limit=12, zone=0)(given) == [-1]


def test_overlong_penalty_by_hand():
    assert OverlongPenalty(limit=20, zone=10)(group(1, 10, 11, 15, 20, 21, 99)) == [0, 0, -0.1, -0.5, -1, -1, -1]


def test_overlong_penalty_without_a_zone_is_a_step():
    assert OverlongPenalty(limit=20, zone=0)(group(1, 20, 21)) == [0, 0, -1]


@pytest.mark.parametrize("zone", [-1, 21])
def test_a_zone_beyond_the_limit_is_refused(zone):
    with pytest.raises(ValueError, match=f"zone is {zone}"):
        OverlongPenalty(limit=20, zone=zone)


def test_drop_overlong_keeps_what_ended_by_itself():
    kept = DropOverlong()(group(3, 5, 5, stop=["stop", "length", "terminated"]))
    assert isinstance(kept, Group) and [r.sample for r in kept.rollouts] == [0, 2]
    assert DropOverlong()(group(5, 5, stop=["length", "length"])) == Drop("overlong")
