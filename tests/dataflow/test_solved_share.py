"""The share of solved groups: its rule by hand, what the filter keeps, and the limits."""

import json
from dataclasses import replace

import made
import pytest
import torch

from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.dataflow.curricula.solved_share import SolvedShare
from gimbal.dataflow.filters.keep_solved import KeepSolved
from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.environments.dataset import Rows
from gimbal.records import Drop, Group, Task

TASKS = Rows(rows=[{"prompt": str(i)} for i in range(3)])
SPEC = SolvedShare(order=Epochs(shuffle=False), every=4)
ZERO_S = torch.zeros(1)
ONE = made.rollout(task=Task(id="t"))


def finished(*scores, necessary=1.0, steps=2.0, keep=0.0, index=0):
    named = {"necessary": necessary, "steps": steps}
    rollouts = tuple(replace(ONE, sample=i, score=x, scores={**named, "right": x}) for i, x in enumerate(scores))
    return Group.of(index, Task(id="t", columns={"keep_solved": keep}), rollouts)


def observe(live, *groups):
    for group in groups:
        live.observe(group)
    return live.next().columns["keep_solved"]


def test_by_hand():
    live = SPEC.start(TASKS, 0)
    solved, mixed, wrong = (1.0, 1.0), (1.0, 0.0), (0.0, 0.0)
    assert live.next().columns["keep_solved"] == 0
    assert observe(live, *(finished(*x, necessary=2.0) for x in (solved, mixed, wrong))) == 0  # not four groups yet
    keep = observe(live, finished(*mixed, necessary=2.0))
    assert live.share == pytest.approx(0.2 * (1 - 0.5)) and live.economy == 1
    assert keep == pytest.approx(0.1 * 2 / (0.9 * 1))
    observe(live, *[finished(*solved)] * 2, *[finished(*mixed)] * 2)  # half of the working is redundant now
    assert live.share == pytest.approx(max(0.0, 0.1 - 0.2 * 0.5)) and live.economy == 0.5


def test_the_share_is_no_larger_than_what_was_sampled():
    live = replace(SPEC, gain=100.0).start(TASKS, 0)
    keep = observe(live, finished(1.0, 1.0, necessary=2.0), *[finished(1.0, 0.0, necessary=2.0)] * 3)
    assert live.share == 0.25 and keep == 1
    live = replace(SPEC, gain=100.0).start(TASKS, 0)
    assert observe(live, *[finished(1.0, 1.0, necessary=2.0)] * 4) == 1 and live.share == 1


def test_nobody_right_leaves_the_economy_and_keeps_none():
    live = SPEC.start(TASKS, 0)
    assert observe(live, *[finished(0.0, 0.0)] * 4) == 0 and live.economy == 0.5
    guess = replace(SPEC, every=1).start(TASKS, 0)
    assert observe(guess, finished(1.0, 1.0, steps=0.0, necessary=0.0)) == 0  # beside no mixed group, no solved one
    assert guess.economy == 1 and guess.share == pytest.approx(0.1)


def test_reduces_to_the_filter_of_dapo_at_share_0():
    assert observe(replace(SPEC, gain=0.0).start(TASKS, 0), *[finished(1.0, 1.0, necessary=2.0)] * 4) == 0
    for scores in ((1.0, 1.0), (0.0, 0.0), (1.0, 0.0), (1.0,), (0.0,)):
        for index in range(20):
            group = finished(*scores, keep=0.0, index=index)
            assert isinstance(KeepSolved()(group), Drop) == isinstance(ZeroVariance()(group), Drop)


def test_solved_groups_stay_by_their_chance():
    kept = [KeepSolved()(finished(1.0, 1.0, keep=0.3, index=i)) for i in range(400)]
    assert 90 < sum(isinstance(x, Group) for x in kept) < 150 and Drop("solved") in kept
    assert kept == [KeepSolved()(finished(1.0, 1.0, keep=0.3, index=i)) for i in range(400)]
    assert isinstance(KeepSolved()(finished(1.0, 1.0, keep=1.0)), Group)
    assert KeepSolved(right="right")(finished(0.0, 0.0, keep=1.0)) == Drop("all_wrong")


def test_it_goes_on_where_it_was():
    live = SPEC.start(TASKS, 0)
    groups = [finished(1.0, 1.0, necessary=2.0), finished(1.0, 0.0), finished(0.0, 0.0), finished(1.0, 0.0)]
    observe(live, *groups, groups[0])
    resumed = SPEC.start(TASKS, 0)
    resumed.load_state_dict(json.loads(json.dumps(live.state_dict())))
    assert observe(resumed, *groups) == observe(live, *groups) and resumed.share == live.share


def test_unfit_options_are_refused():
    with pytest.raises(ValueError, match="1 group or more"):
        SolvedShare(every=0)
