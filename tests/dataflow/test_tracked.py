"""The record of a task, and the baseline made of it."""

import json
from dataclasses import replace

import made
import pytest

from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.dataflow.curricula.tracked import Tracked
from gimbal.environments.dataset import Rows
from gimbal.records import Group
from gimbal.rewards.expected import Expected
from gimbal.rewards.scoring import score

TASKS = Rows(rows=[{"prompt": str(i)} for i in range(3)])
IN_ORDER = Epochs(shuffle=False)


def finished(task, *scores):
    one = made.rollout(task=task)
    rollouts = tuple(replace(one, sample=i, score=x, scores={"right": 1 - x}) for i, x in enumerate(scores))
    return Group.of(0, task, rollouts)


def expected_after(*scores, **kwargs):
    live = Tracked(order=IN_ORDER, **kwargs).start(TASKS, 0)
    live.observe(finished(live.next(), *scores))
    again = [live.next() for _ in range(3)][-1]
    return again.columns["expected"]


def test_by_hand():
    assert Tracked().start(TASKS, 0).next().columns["expected"] == 0.5
    # a: 0.5, 1.25, 0.625; b: 0.5, 0.25, 1.125
    assert expected_after(1.0, 0.0, forget=0.5) == pytest.approx(0.625 / 1.75)
    assert expected_after(7.0, -3.0, forget=0.5) == expected_after(1.0, 0.0, forget=0.5)
    assert expected_after(1.0, name="right") == expected_after(0.0)


def test_reduces_to_the_running_mean_and_to_the_last_reward():
    rewards = [1.0, 0.0, 1.0, 1.0]
    assert expected_after(*rewards, forget=1.0) == pytest.approx((0.5 + 3) / (1 + 4))
    assert expected_after(*rewards, 0.25, forget=0.0) == 0.25


def test_it_goes_on_where_it_was():
    live = Tracked().start(TASKS, 0)
    for x in (0.0, 1.0, 1.0, 0.5):
        live.observe(finished(live.next(), x))
    resumed = Tracked().start(TASKS, 0)
    resumed.load_state_dict(json.loads(json.dumps(live.state_dict())))
    assert [resumed.next() for _ in range(5)] == [live.next() for _ in range(5)]


def test_the_baseline_is_a_reward_of_weight_minus_1():
    class Earned(Expected):
        def __call__(self, group):
            return [1.0, 0.0]

    live = Tracked().start(TASKS, 0)
    group = finished(live.next(), 0.0, 0.0)
    scored = score(group, (Earned(name="earned", weight=1.0), Expected()))
    assert scored.score_G.tolist() == [0.5, -0.5]
    assert Expected(column="nothing")(group) == [None, None]


def test_bounds_are_refused():
    with pytest.raises(ValueError, match="from 0 to 1"):
        Tracked(forget=1.1)
