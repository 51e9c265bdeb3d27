"""Stores of whole groups: what comes again, how old it may be, what it is counted as, and that it comes back after a kill."""

import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import made
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from killing import differing
from small import rows, small_run

from gimbal import api
from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.dataflow.packing import pack
from gimbal.dataflow.replay.recent import Recent
from gimbal.dataflow.replay.successes import Successes
from gimbal.objectives import TruncatedWeight
from gimbal.objectives.masks.covariance_mask import CovarianceMask
from gimbal.policies.token import Sampling, Tokens
from gimbal.records import Episode, Group, Rollout, Task
from gimbal.report.selection import Selection
from gimbal.rewards.base import AbstractReward
from gimbal.runtime import compose
from gimbal.runtime.local import Trainer

STORES = [Successes(each=2, capacity=5, max_age=6), Successes(add=True), Recent(share=0.5), Recent(until=4)]
RECORDS = [Episode, Group, Rollout, Task, Sampling, Tokens]


def group(index, *scores, task="t", version=0):
    behavior_S = torch.tensor([-0.5 - index])
    row = {"version_S": torch.tensor([version]), "behavior_S": behavior_S, "task": Task(id=task)}
    return Group.of(index, Task(id=task), [made.rollout(sample=i, score=float(s), **row) for i, s in enumerate(scores)])


def fail(group):
    raise AssertionError("these stores ask for no verdict")


def stream(version):
    """The groups of a step: two of task t, which fails and succeeds in turn, one of a task of its own."""
    first = 3 * version
    return [
        group(first, version % 2, 0, 0, 0, version=version),
        group(first + 1, 0, 0, 0, 0, version=version),
        group(first + 2, 1, 1, 0, 0, task=f"own {version}", version=version),
    ]


def told(groups):
    """What a step trains on, in a form that compares."""
    return [
        (g.index, e.sample, e.origin, e.earned, float(e.last.behavior_S[0]), e.oldest)
        for g in groups
        for e in g.episodes
    ]


def driven(store, versions, order=lambda groups: groups):
    return [
        told(store.join(sorted((store.fix(g, v + 1) for g in order(stream(v))), key=lambda g: g.index), v, fail))
        for v in versions
    ]


@pytest.mark.parametrize("spec", STORES, ids=repr)
def test_every_store_repeats_itself_resumes_and_is_bounded(spec, tmp_path):
    whole, again, cut = (spec.start(7) for _ in range(3))
    steps = driven(whole, range(9))
    assert driven(again, range(9)) == steps
    assert driven(cut, range(4)) == steps[:4]
    torch.save(cut.state_dict(), tmp_path / "state.pt")
    resumed = spec.start(7)
    with torch.serialization.safe_globals(RECORDS):
        resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert driven(resumed, range(4, 9)) == steps[4:]
    assert differing(resumed.state_dict(), whole.state_dict()) is None and resumed.metrics() == whole.metrics()
    assert whole.metrics()["replay/used"] > 0
    oldest = [version - age for version, step in enumerate(steps) for *_, age in step]
    assert max(oldest) <= spec.most_age(0), "no older than it says"
    empty = spec.start(7)
    assert empty.join([], 0, fail) == [] and empty.metrics()["replay/held"] == 0


@pytest.mark.parametrize("spec", [Successes(each=8), Successes(each=2, capacity=4)], ids=repr)
def test_what_is_held_does_not_hang_on_who_came_first(spec):
    """Within a step, of tasks of their own: the same are held whatever the order of arrival."""
    ends = []
    for order in (lambda groups: groups, lambda groups: [groups[i] for i in (2, 0, 1)]):
        store = spec.start(0)
        for version in range(5):
            own = [group(3 * version + i, 1, 0, 1, 0, task=f"{i}", version=version) for i in range(3)]
            for g in order(own):
                store.fix(g, version)
        ends.append({task: [(index, e.sample) for index, e in own] for task, own in sorted(store.held.items())})
    assert ends[0] == ends[1]


def test_a_group_that_failed_gets_a_success_of_its_task_and_keeps_its_age():
    store = Successes().start(0)
    first = group(0, 0, 1, 0, 0, version=3)
    assert store.fix(first, 3) is first, "a group with a success is not touched"
    fixed = store.fix(group(1, 0, 0, 0, 0, version=5), 6)
    assert [e.earned for e in fixed.episodes] == [1, 0, 0, 0] and fixed.index == 1
    old, *own = fixed.episodes
    assert (old.sample, old.origin, old.oldest) == (0, "replayed", 3) and [e.origin for e in own] == ["", "", ""]
    assert float(old.last.behavior_S[0]) == -0.5, "with the log-probability that it was drawn with"
    assert len(store.held["t"]) == 1, "what is played again is not held twice"
    other = group(2, 0, 0, 0, 0, task="other")
    assert store.fix(other, 6) is other, "nothing is held for the task"


@pytest.mark.parametrize(
    ("spec", "scores", "fixed"),
    [
        (Successes(), (0.1, 0.1, 0.1, 0.1), True),
        (Successes(), (0.2, 0.2, 0.2, 0.2), False),  # mean at low
        (Successes(), (0.1, 0.0, 0.1, 0.0), False),  # a deviation of 0.05
        (Successes(spread=0.0), (0, 0, 0, 0), False),
        (Successes(low=0.0), (0, 0, 0, 0), False),
        (Successes(max_age=0), (0, 0, 0, 0), False),
    ],
)
def test_when_a_group_counts_as_failed(spec, scores, fixed):
    store = spec.start(0)
    store.fix(group(0, 1, 1, 0, 0), 1)
    came = store.fix(group(1, *scores), 1)
    assert any(e.origin for e in came.episodes) == fixed and len(came.episodes) == 4


def test_added_it_stands_behind_the_others():
    store = Successes(add=True).start(0)
    store.fix(group(0, 1, 0), 0)
    came = store.fix(group(1, 0, 0), 0)
    assert [(e.sample, e.earned, e.origin) for e in came.episodes] == [(0, 0, ""), (1, 0, ""), (2, 1, "replayed")]


def test_a_branch_that_comes_alone_has_left_its_trunk():
    """What it took over stays masked, and is no longer said to be another row's; off a row of its own it still splits."""
    trunk, row = (
        Tokens.row([0], [1, 2, 3]),
        {"task": Task(id="t"), "score": 1.0, "mask_S": torch.tensor([False, True, True])},
    )
    branch = made.rollout(sample=2, decisions=trunk, fork=(1, 1), **row)
    again = made.rollout(sample=2, decisions=trunk, fork=(2, 1), row=1, **row)
    plain = [made.rollout(Task(id="t"), sample=n, score=0.0) for n in (0, 1)]
    drawn = Group.of(0, Task(id="t"), plain)
    store = Successes().start(0)
    store.fix(replace(drawn, episodes=(*drawn.episodes, Episode(rows=(branch, again)))), 0)
    old = store.fix(group(1, 0, 0, 0), 0).episodes[0]
    assert [r.fork for r in old.rows] == [None, (0, 1)] and [r.sample for r in old.rows] == [0, 0]
    assert [r.mask_S.tolist() for r in old.rows] == [[False, True, True]] * 2
    for r in old.rows:
        r.validate()


@pytest.mark.parametrize("add", [False, True])
def test_a_stored_success_is_nobodys_trunk(add):
    """Sample 0 is the trunk of 2, and 1 that of 3 and 4: the first that none split off is 2."""
    store = Successes(add=add).start(0)
    store.fix(group(0, 1, 0), 0)
    lone, long = {"task": Task(id="t"), "score": 0.0}, Tokens.row([0], [1, 2, 3])
    rows_of = [made.rollout(sample=n, decisions=long, **lone) for n in range(2)]
    rows_of += [
        made.rollout(sample=2 + n, decisions=long, fork=(trunk, 1), mask_S=torch.arange(3) > 0, **lone)
        for n, trunk in enumerate((0, 1, 1))
    ]
    came = store.fix(Group.of(1, Task(id="t"), rows_of), 0)
    assert [e.sample for e in came.episodes if e.origin] == ([5] if add else [2])
    batch = pack([came])
    assert batch.parent_N.tolist() == ([-1, -1, 0, 1, 1, -1] if add else [-1, -1, -1, 1, 1])
    assert {came.rows[n].sample for n in batch.parent_N.tolist() if n >= 0} == ({0, 1} if add else {1})


def test_a_success_is_let_go_when_it_would_be_too_old():
    store = Successes(max_age=4).start(0)
    store.fix(group(0, 1, 0), 1)
    assert store.fix(group(1, 0, 0, version=3), 4).episodes[0].origin, "trained on at version 4 at the latest: of age 4"
    assert not store.fix(group(2, 0, 0, version=4), 5).episodes[0].origin
    store.join([], 4, fail)
    assert store.metrics()["replay/expired"] == 0 and store.metrics()["replay/held"] == 1
    store.join([], 5, fail)
    assert store.metrics()["replay/expired"] == 1 and store.metrics()["replay/held"] == 0 and store.held == {}


def test_each_of_those_held_is_as_likely():
    store = Successes(each=4).start(0)
    store.fix(group(0, 1, 1, 1, 1, 0, 0), 0)
    store.fix(group(1, 1, 0, 0), 0)
    assert [(i, e.sample) for i, e in store.held["t"]] == [(0, 1), (0, 2), (0, 3), (1, 0)], "the newest four"
    seen = Counter(float(store.fix(group(i, 0, 0), 0).episodes[0].last.behavior_S[0]) for i in range(10, 210))
    assert abs(seen[-1.5] - 50) < 5 * 37.5**0.5 and seen[-0.5] == 200 - seen[-1.5]


def test_of_a_step_the_share_is_of_old_batches_each_as_likely():
    store = Recent(share=0.4, window=2).start(0)
    ages, old = Counter(), 0
    for version in range(102):
        came = store.join([group(4 * version + i, 1, 0, version=version) for i in range(4)], version, fail)
        assert len({g.index for g in came}) == len(came), "a group comes once a step, and whole"
        again = [g for g in came if g.episodes[0].origin]
        assert came[:4] == [g for g in came if not g.episodes[0].origin] and all(len(g.episodes) == 2 for g in again)
        ages.update(version - g.episodes[0].oldest for g in again if version >= 2)
        old += len(again) if version >= 2 else 0
    # 8/3 a step: two and, two times in three, one more; the deviation of a hundred such steps is 5.
    assert old == pytest.approx(800 / 3, abs=5 * 5)
    assert set(ages) == {1, 2} and abs(ages[1] - old / 2) < 5 * (old / 4) ** 0.5


@pytest.mark.parametrize("spec", [Recent(share=0.0), Recent(until=0)])
def test_without_a_share_or_past_its_time_nothing_comes_again(spec):
    store = spec.start(0)
    for version in range(4):
        assert not any(e.origin for g in store.join(stream(version), version, fail) for e in g.episodes)
    assert store.held == {}


def test_what_it_selects_is_told_to_two_percent():
    """A known bias: of 200 groups every second fails and has one success put into it, of twice the length."""
    books = Selection()
    long = Tokens.row([1], [2, 2])
    for index in range(200):
        drawn = group(index, 0, 0, 0, index % 2)
        books.dispatched(index, 0)
        books.scored(drawn, 4)
        if index % 2 == 0:
            row = made.rollout(sample=0, score=1.0, decisions=long)
            drawn = replace(drawn, episodes=(Episode(rows=(row,), origin="replayed"), *drawn.episodes[1:]))
        books.trained(drawn)
        books.replayed(drawn)
    told = books.metrics()
    assert told["selection/sampled/success"] == pytest.approx(0.125, rel=0.02)
    assert told["selection/trained/success"] == pytest.approx(0.25, rel=0.02)
    assert told["selection/sampled/length"] == pytest.approx(1.0, rel=0.02)
    assert told["selection/trained/length"] == pytest.approx(1.125, rel=0.02)
    assert told["selection/replayed"] == pytest.approx(0.125, rel=0.02)
    assert told["selection/lost/filtered"] == pytest.approx(0.125, rel=0.02), "the rollouts that were replaced"
    assert told["selection/trained/difficulty"] == pytest.approx(0.875, rel=0.02)


OLD = {"correction": TruncatedWeight()}


@pytest.mark.parametrize("store", [Successes(), Recent()])
def test_what_comes_again_must_be_weighed(store):
    with pytest.raises(
        ValueError, match=r"nothing here weighs it by how it was drawn: set correction=TruncatedWeight\(\)"
    ):
        compose.check(small_run(store=store))
    with pytest.raises(
        ValueError, match="nothing here weighs"
    ):  # it reads log-probabilities as lots, and weighs nothing
        compose.check(small_run(store=store, masks=(CovarianceMask(),)))
    warned = compose.check(small_run(store=store, **OLD))
    assert any("max_staleness holds for what is drawn" in sentence for sentence in warned)
    assert f"at most {store.most_age(0)} versions old" in api.statement(small_run(store=store, **OLD))


@pytest.mark.parametrize(
    "wrong",
    [lambda: Successes(each=0), lambda: Successes(max_age=-1), lambda: Recent(share=1.0), lambda: Recent(window=0)],
)
def test_bad_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match=r"at least 1"):
        wrong()


@dataclass(frozen=True, kw_only=True)
class Seldom(AbstractReward):
    """One rollout of the first two groups is right, and nothing after that."""

    name: str = "seldom"

    def __call__(self, group: Group) -> list[float | None]:
        return [float(group.index < 2 and place == 1) for place in range(len(group.episodes))]


@pytest.mark.slow
def test_a_saved_group_passes_the_filter_that_would_have_dropped_it():
    """With Successes no step starves; with Recent two groups of every step are new, and others come beside them."""
    run = small_run(tasks=rows(1), filters=(ZeroVariance(),), max_staleness=1, rewards=(Seldom(),), **OLD)
    trainer = Trainer(replace(run, store=Successes()))
    found = [trainer.advance() for _ in range(3)]
    trainer.close()
    assert [m["replay/used"] > 0 for m, _, _ in found][-1] and "drops/zero_variance" not in found[-1][0]
    assert found[-1][0]["replay/share"] == 1 / 4 and found[-1][0]["replay/age"] == 2 == found[-1][0]["staleness/max"]
    trainer = Trainer(small_run(store=Recent(), max_staleness=1, **OLD))
    found = [trainer.advance() for _ in range(3)]
    trainer.close()
    for metrics, groups, batch in found:
        new = [g for g in groups if not any(e.origin for e in g.episodes)]
        assert len(new) == 2 and batch.shape[0] == 4 * len(groups) and metrics["staleness/max"] <= 3
    assert found[-1][0]["replay/share"] > 0
