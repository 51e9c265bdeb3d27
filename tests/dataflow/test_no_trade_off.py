"""The filter of groups in which a second reward has nothing to choose between."""

import made
import pytest

from gimbal.dataflow.filters.no_trade_off import NoTradeOff
from gimbal.records import Drop, Group, Task

FILTER = NoTradeOff(right="right", name="speed")


def group(right, speed):
    task = Task(id="t")
    rollouts = tuple(
        made.rollout(task=task, sample=i, scores={"right": float(r), "speed": s})
        for i, (r, s) in enumerate(zip(right, speed, strict=True))
    )
    return Group.of(0, task, rollouts)


def test_it_keeps_successes_of_different_speed():
    kept = group([0, 1], [1.0, 2.0])
    assert FILTER(kept) is kept


def test_it_drops_what_teaches_no_trade_off():
    assert FILTER(group([0, 0.5], [1.0, 2.0])) == Drop("no_success")
    assert FILTER(group([0, 1], [1.0, 1.005])) == Drop("no_trade_off")
    assert FILTER(group([1], [1.0])) == Drop("no_trade_off")


def test_a_missing_reward_is_told():
    with pytest.raises(ValueError, match="fast"):
        NoTradeOff(right="right", name="fast")(group([1], [1.0]))
