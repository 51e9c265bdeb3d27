"""The filter of groups in which a second reward has nothing to choose between."""

import pytest
import torch

from gimbal.dataflow.filters.no_trade_off import NoTradeOff
from gimbal.policies.token import Tokens
from gimbal.records import Drop, Group, Rollout, Sampling, Task

FILTER = NoTradeOff(right="right", name="speed")


def group(right, speed):
    task, zero_S = Task(id="t"), torch.zeros(1)
    rollouts = tuple(
        Rollout(
            task=task,
            sample=i,
            decisions=Tokens.row([1], [2]),
            behavior_S=zero_S,
            version_S=zero_S.long(),
            mask_S=zero_S == 0,
            reward_S=zero_S,
            stop="stop",
            sampling=Sampling(),
            scores={"right": float(r), "speed": s},
        )
        for i, (r, s) in enumerate(zip(right, speed, strict=True))
    )
    return Group(index=0, task=task, rollouts=rollouts)


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
