"""Which path splits off which, that no step is drawn or trained on twice, and what it is without splits."""

import pickle
from dataclasses import replace

import pytest
import torch

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from gimbal.dataflow.packing import pack
from gimbal.engines.base import Request, drained
from gimbal.engines.denoising import Denoising
from gimbal.ops import TokenMean
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.paths import PathSampling
from gimbal.records import Group, Task
from gimbal.workflows.fixed_splits import FixedSplits
from gimbal.workflows.runner import Driven
from gimbal.workflows.single import SingleTurn

SAMPLING = PathSampling(max_length=6, sampler="dance_sde", noise=0.3, same_start=True)
TASK = Task(id="t")


@pytest.fixture(scope="module")
def policy():
    torch.set_num_threads(1)
    return Denoiser(batch=16).load(0)


def started(policy, workflow, slots=5):
    live = Driven(engine=Denoising(slots=slots), workflow=workflow).start(policy)
    live.load(0, policy.weights())
    return live


def asked(live, count, groups=1, **sampling):
    for group in range(groups):
        for sample in range(count):
            wanted = replace(SAMPLING, **sampling)
            live.submit(Request(group=group, task=Task(id=f"t{group}"), sample=sample, sampling=wanted, seed=3))
    return live


def rows(live):
    return {key: finished.rollout for key, finished in sorted(drained(live).items())}


def grown(policy, workflow, count, **sampling):
    return list(rows(asked(started(policy, workflow), count, **sampling)).values())


def same(one, other):
    return (
        torch.equal(one.decisions.state_NXD, other.decisions.state_NXD)
        and torch.equal(one.behavior_S, other.behavior_S)
        and torch.equal(one.mask_S, other.mask_S)
        and one.fork == other.fork
    )


# splits, factor, size -> (parent, split) of each sample, by hand
TREES = {
    ((1, 3), 2, 4): [None, (0, 3), (0, 1), (2, 3)],
    ((1, 3), 2, 7): [None, None, (0, 3), (1, 3), (0, 1), (1, 1), (4, 3)],
    ((1, 3), 2, 3): [None, (0, 3), (0, 1)],
    ((2, 4), 3, 9): [None, (0, 4), (0, 4), (0, 2), (3, 4), (3, 4), (0, 2), (6, 4), (6, 4)],
    ((2,), 5, 5): [None, (0, 2), (0, 2), (0, 2), (0, 2)],
    ((1, 2, 4), 2, 1): [None],
}


@pytest.mark.parametrize("splits, factor, size", TREES, ids=str)
def test_which_path_splits_off_which_and_that_each_step_is_drawn_and_counted_once(policy, splits, factor, size):
    found = grown(policy, FixedSplits(splits=splits, factor=factor), size)
    assert [row.fork for row in found] == TREES[splits, factor, size]
    for row in found:
        row.validate()
        kept = row.fork[1] if row.fork else 0
        assert row.mask_S.tolist() == [kept <= step < 5 for step in range(6)]
        if row.fork:
            parent = found[row.fork[0]].decisions
            assert torch.equal(row.decisions.state_NXD[:, : kept + 1], parent.state_NXD[:, : kept + 1])
            assert not torch.equal(row.decisions.state_NXD[:, kept + 1], parent.state_NXD[:, kept + 1])
    # A step is known by where it starts and ends. Those drawn are all the steps of all paths, each once.
    ends = {(s, row.decisions.state_NXD[0, s : s + 2].numpy().tobytes()) for row in found for s in range(6)}
    assert len(ends) == sum(row.drawn for row in found) == 6 * size - sum(row.fork[1] for row in found if row.fork)
    assert len({row.decisions.sample_ND.numpy().tobytes() for row in found}) == size


def test_a_shared_step_weighs_as_much_in_the_mean_as_any_other(policy):
    """Sixteen paths of the recipe's shape: 2 + 2 + 4 + 8 + 8 + ... steps, each with one over their number."""
    found = grown(policy, FixedSplits(splits=(2, 3, 4)), 16)
    batch = pack([Group.of(0, TASK, [replace(row, task=TASK, score=float(row.sample)) for row in found])])
    assert batch.mask_NS.sum(0).tolist() == [2, 2, 4, 8, 16, 0]
    weight_NS = TokenMean()(batch.mask_NS, batch.part_NS)
    assert torch.equal(weight_NS, batch.mask_NS / 32)
    assert batch.decisions.drawn_NS.equal(batch.mask_NS), "the network is called for no other step"


@pytest.mark.parametrize("workflow", [FixedSplits(splits=()), FixedSplits(factor=1)], ids=repr)
def test_without_splits_it_is_a_single_turn_to_the_bit(policy, workflow):
    plain, found = grown(policy, SingleTurn(), 6), grown(policy, workflow, 6)
    assert all(same(one, other) for one, other in zip(found, plain, strict=True))


def test_the_roots_are_what_they_would_have_been_alone(policy):
    plain, found = grown(policy, SingleTurn(), 8), grown(policy, FixedSplits(splits=(1, 2)), 8)
    assert same(found[0], plain[0]) and same(found[1], plain[1]) and not same(found[2], plain[2])


def test_a_path_too_short_for_a_split_is_not_split_there(policy):
    found = grown(policy, FixedSplits(splits=(1, 4)), 4, max_length=4)
    assert [row.fork for row in found] == [None, None, (0, 1), (1, 1)]


def test_a_split_before_the_last_sampled_step_leaves_each_branch_that_one(policy):
    found = grown(policy, FixedSplits(splits=(4,)), 4)
    assert [int(row.mask_S.sum()) for row in found] == [5, 5, 1, 1]


def test_a_state_goes_on_from_every_step_to_the_same_bits(policy):
    """With branches in the queue, under way, and asked for by paths that have ended."""
    workflow = FixedSplits(splits=(1, 3))

    def begun():
        return asked(started(policy, workflow, slots=3), 6, groups=2)

    expected, live, done, waiting = rows(begun()), begun(), {}, 0
    while live.in_flight:
        state, before = pickle.dumps(live.state_dict()), dict(done)
        waiting += bool(live.inner.state_dict()["trunks"])
        again = started(policy, workflow, slots=3)
        again.load_state_dict(pickle.loads(state))
        found = before | rows(again)
        assert found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
        done |= {item.key: item.rollout for item in live.step()}
    assert waiting > 2


def test_what_a_branch_takes_over_keeps_its_version(policy):
    live = asked(started(policy, FixedSplits(splits=(2,))), 2)
    for _ in range(7):  # six steps of the root, one of its branch
        live.step()
    live.load(1, policy.weights())
    assert rows(live)[0, 1].version_S.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_cancelled_root_is_still_drawn_for_its_branches(policy):
    live = asked(started(policy, FixedSplits(splits=(2,))), 2)
    live.step()
    assert live.cancel((0, 0)) is None
    found = rows(live)
    assert list(found) == [(0, 1)] and found[0, 1].fork == (0, 2)
    group = Group.of(0, TASK, [replace(found[0, 1], task=TASK, score=1.0)])
    assert pack([group]).parent_N.tolist() == [-1] and pack([group]).mask_NS.sum() == 3, (
        "what it took over trains nowhere"
    )


def test_splits_that_do_not_rise_are_refused():
    for wrong in ({"splits": (0, 2)}, {"splits": (3, 2)}, {"splits": (2, 2)}, {"factor": 0}):
        with pytest.raises(ValueError, match="rising numbers of steps from 1"):
            FixedSplits(**wrong)
