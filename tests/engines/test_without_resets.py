"""Environments that go on by themselves where an episode ends: the engine never resets them, and resumes them to the same bits."""

import pickle
from itertools import pairwise

import pytest
import torch

from gimbal.engines.base import Request
from gimbal.engines.early_stop import EarlyStop
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.policies.control import StepSampling
from gimbal.policies.squashed import SquashedGaussian

TASKS = Gymnasium(environment="gimbal.environments.there_and_back:docking", seed=3)
JUDGED = SquashedGaussian(observations=6, actions=2, bound=0.1, judges=2)
POLICY = SquashedGaussian(observations=6, actions=2, bound=0.1).load(0)
ACHIEVED, DESIRED = slice(0, 2), slice(2, 4)  # of what is observed


def made(segment, slots=1):
    engine = Episodes(slots=slots, segment=segment).start(POLICY)
    engine.load(0, POLICY.state_dict())
    return engine


def rows_of(segment, count=12, resumed_at=(), most=10**6, slots=1):
    engine, rows, steps = made(segment, slots), [], 0
    for index in range(count):
        sampling = StepSampling(max_length=most)
        engine.submit(Request(group=index, task=TASKS[index], sample=0, sampling=sampling, seed=0))
        if engine.in_flight < slots:
            continue
        while engine.in_flight:
            if steps in resumed_at:
                state = pickle.loads(pickle.dumps(engine.state_dict()))
                engine = made(segment, slots)
                engine.load_state_dict(state)
            rows += [finished.rollout for finished in engine.step()]
            steps += 1
    return rows


@pytest.mark.parametrize("segment", [0, 15])
def test_a_way_begins_where_the_one_before_it_ended(segment):
    rows = rows_of(segment)
    turned = 0
    for one, other in pairwise(rows):
        end_O, begin_O = one.decisions.final_NO[0], other.decisions.observation_NSO[0, 0]
        assert torch.equal(end_O[ACHIEVED], begin_O[ACHIEVED])
        ended = one.stop in ("terminated", "truncated")
        assert torch.equal(end_O[DESIRED], begin_O[DESIRED]) != ended  # values look at the way's own goal
        turned += ended
    assert turned > 2 and {row.stop for row in rows} <= {"terminated", "truncated", "paused"}
    if segment:  # each way has its own return
        whole = [row for row in rows if row.stop != "paused"]
        assert all(-40 <= row.scores["return"] <= 0 and row.scores["success"] in (0.0, 1.0) for row in whole)


@pytest.mark.parametrize(("segment", "slots"), [(0, 1), (15, 1), (15, 2)])
def test_it_is_resumed_to_the_same_bits(segment, slots):
    rest = rows_of(segment, slots=slots)
    again = rows_of(segment, slots=slots, resumed_at=(7, 40, 60, 95, 130))
    for one, other in zip(rest, again, strict=True):
        assert torch.equal(one.decisions.observation_NSO, other.decisions.observation_NSO)
        assert torch.equal(one.reward_S, other.reward_S) and (one.stop, one.scores) == (other.stop, other.scores)


def test_the_limit_of_an_episode_resets_it():
    rows = rows_of(0, most=50)
    assert rows[0].length == 40 and rows[1].length == 10 and rows[1].stop == "truncated"
    begin_O = rows[2].decisions.observation_NSO[0, 0]
    assert not torch.equal(rows[1].decisions.final_NO[0][ACHIEVED], begin_O[ACHIEVED])


def test_what_proves_the_delivery_is_not_gone_on_from():
    engine = made(0)
    engine.submit(Request(group=-1, task=TASKS[0], sample=0, sampling=StepSampling(max_length=10**6), seed=0))
    while engine.in_flight:
        engine.step()
    assert not engine._paused and len(engine._environments._idle) == 1


def test_early_stops_are_refused_where_nothing_is_reset():
    """A stop would be a reset, and an episode that is spared would be so for good."""
    engine = Episodes(slots=1, early_stop=EarlyStop()).start(JUDGED.load(0))
    engine.load(0, JUDGED.load(0).state_dict())
    engine.submit(Request(group=0, task=TASKS[0], sample=0, sampling=StepSampling(max_length=10**6), seed=0))
    with pytest.raises(
        ValueError, match=r"docking goes on by itself where an episode ends.*set engine\.early_stop=none"
    ):
        while engine.in_flight:
            engine.step()
