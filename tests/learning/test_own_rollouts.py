"""Worlds that learn on their own rollouts: which steps a path holds, the loss by hand, and what it is with one step."""

from dataclasses import replace

import pytest
import torch
from test_learned_worlds import WORLD, drawn

from gimbal.dataflow.replay.hindsight import Hindsight
from gimbal.dataflow.replay.recorded import recorded
from gimbal.dataflow.replay.transitions import FRESH, MOVE, PATH, Transitions
from gimbal.environments.minari import Minari
from gimbal.learning.updates.model_learning import surprise

DATA = Minari(dataset="gimbal/maze/stitch-v0")


def test_a_path_holds_the_steps_that_follow_in_its_episode_and_no_more():
    rows, goes_on_K = recorded(DATA.recording)
    store = Transitions(capacity=150, minibatch=64, learning_starts=0, update_to_data=0.02, path=4).start(0)
    store.join([], 0, lambda group: group)
    lengths = set()
    for first in (0, 100, 200):  # the ring of 150 wraps
        every = torch.arange(first, first + 100)
        ended = (~goes_on_K[every]).nonzero()[:, 0]
        assert len(ended), "episodes end in it"
        fresh = rows.select(every)
        store._enter(fresh, goes_on_K[every] & (torch.arange(100) < 99))
        drawn_rows = store._at(torch.arange(store.held))
        for row in range(store.held):
            place = next(
                k
                for k in range(first + 99, -1, -1)
                if torch.equal(rows.decisions.final_NO[k], drawn_rows.decisions.final_NO[row])
                and torch.equal(rows.decisions.action_NSA[k], drawn_rows.decisions.action_NSA[row])
            )
            wanted = [place]
            while len(wanted) < 4 and goes_on_K[wanted[-1]] and wanted[-1] % 100 < 99:
                wanted.append(wanted[-1] + 1)
            path_pF = drawn_rows.facts[PATH][row, 0]
            known = len(wanted)
            lengths.add(known)
            steps = rows.decisions
            assert torch.equal(path_pF[:known, :2], steps.action_NSA[wanted, 0])
            assert torch.equal(path_pF[:known, 2:-2], steps.final_NO[wanted])
            assert torch.equal(path_pF[:known, -2], rows.reward_NS[wanted, 0])
            assert path_pF[:known, -1].tolist() == steps.terminated_N[wanted].float().tolist()
            assert bool(path_pF[known:].isnan().all())
    assert lengths == {1, 2, 3, 4}


def test_what_comes_in_has_no_path():
    rows, _ = recorded(DATA.recording)
    store = Transitions(capacity=500, minibatch=8, learning_starts=0, update_to_data=0.05, path=3).start(0)
    store.join([], 0, lambda group: group)
    batch = store.take(rows.select(torch.arange(40)))
    new_N = batch.facts[MOVE] == FRESH
    assert bool(batch.facts[PATH][new_N].isnan().all()) and not bool(batch.facts[PATH][~new_N, :, 0].isnan().any())


def paths(known, ends=False):
    """Eight rows, with so many steps known of three."""
    batch, g = drawn(), torch.Generator().manual_seed(7)
    path = torch.randn(8, 1, 3, 2 + 3 + 2, generator=g)
    path[..., -1] = 0.0
    steps = batch.decisions
    path[:, :, 0] = torch.cat(
        [steps.action_NSA, steps.final_NO[:, None], batch.reward_NS[..., None], torch.zeros(8, 1, 1)], -1
    )
    if ends:
        path[:, :, known - 1, -1] = 1.0
    path[:, :, known:] = torch.nan
    return batch, batch.with_columns({PATH: path})


@pytest.mark.parametrize("ends", ["never", "learned"])
@pytest.mark.parametrize("known", [2, 3])
def test_the_loss_is_that_of_each_members_own_observations_with_the_recorded_changes_that_lead_back(known, ends):
    world = replace(WORLD, ends=ends).load(1)
    batch, with_path = paths(known, ends == "learned")
    observed = drawn(50, FRESH, seed=3)
    world.observe(
        observed.decisions.observation_NSO[:, 0],
        observed.decisions.action_NSA[:, 0],
        observed.decisions.final_NO,
        observed.reward_NS[:, 0],
    )
    expected, path = torch.zeros(8), with_path.facts[PATH][:, 0]
    for member in range(2):
        seen = batch.decisions.observation_NSO[:, 0]
        for step in range(known):
            mean, log_std, end = world(seen.expand(2, -1, -1), path[:, step, :2])
            target = torch.cat([path[:, step, 2:5] - seen, path[:, step, 5:6]], -1)
            normal = torch.distributions.Normal(mean[member], world.spread_T * log_std[member].exp())
            expected = expected - normal.log_prob(target).sum(-1) / known
            if end is not None:
                expected = (
                    expected - torch.distributions.Bernoulli(logits=end[member]).log_prob(path[:, step, 6]) / known
                )
            seen = seen + mean[member, :, :3]  # its own, with the gradient
    found = surprise(world, with_path)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    weights = list(world.parameters())
    ours = torch.autograd.grad(found.mean(), weights)
    torch.testing.assert_close(ours, torch.autograd.grad(expected.mean(), weights), rtol=1e-3, atol=1e-4)
    assert all(bool(x.isfinite().all()) for x in ours), "unknown steps have no gradient"


def test_paths_of_which_one_step_is_known_are_single_steps():
    world = WORLD.load(1)
    batch, with_path = paths(1)
    torch.testing.assert_close(surprise(world, with_path), surprise(world, batch))
    assert not torch.allclose(surprise(world, paths(3)[1]), surprise(world, batch))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Transitions(path=0), "path 0"),
        (lambda: Transitions(path=3, hindsight=Hindsight()), "store.path=1, or store.hindsight=none"),
    ],
)
def test_bad_paths_are_refused_in_a_sentence(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_a_path_longer_than_the_buffer_is_refused():
    with pytest.raises(ValueError, match="path is 200, and its capacity 100 steps: lower path"):
        Transitions(path=200, capacity=100)
