"""Stores: what goes in, what comes out, how old it may be, and that it comes back after a kill."""

import errno
import os
import sys
from dataclasses import replace
from pathlib import Path

import made
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import small_run

from gimbal import api, recipes
from gimbal.advantages import GroupNormalized, LeafMean
from gimbal.dataflow.packing import pack
from gimbal.dataflow.replay.buffer import Buffer, joined
from gimbal.dataflow.replay.once import Once
from gimbal.dataflow.replay.preferences import AgeDecay, Prioritized
from gimbal.dataflow.replay.transitions import FRESH, IMPORTANCE, MOVE, PLACE, Transitions, each, parted, split
from gimbal.objectives import TruncatedWeight
from gimbal.policies.control import Steps
from gimbal.policies.token import Tokens
from gimbal.records import Episode, Group, Task, TrainBatch
from gimbal.runtime import compose


def rows(lengths, start=0, ended=()):
    """Episodes whose observations count up, so that a step is known by its number; group = place."""
    n, s = len(lengths), max(lengths)
    length_N = torch.tensor(lengths)
    real_NS = torch.arange(s) < length_N[:, None]
    number_NS = torch.where(real_NS, start + 100 * torch.arange(n)[:, None] + torch.arange(s), 0).float()
    steps = Steps(
        observation_NSO=number_NS[..., None],
        action_NSA=-number_NS[..., None],
        final_NO=(start + 100 * torch.arange(n) + length_N)[:, None].float(),
        length_N=length_N,
        terminated_N=torch.tensor([i in ended for i in range(n)]),
    )
    return TrainBatch(
        mask_NS=real_NS,
        reward_NS=number_NS / 10,
        group_N=start + torch.arange(n),
        sample_N=torch.zeros(n, dtype=torch.long),
        version_NS=torch.full((n, s), start),
        facts={"truncated": length_N.float()},
        decisions=steps,
    )


def test_once_passes_on_what_it_is_given():
    fresh = rows([2, 3])
    assert Once().start(0).take(fresh) is fresh
    assert Once().most_age(2) == 2 and Buffer().most_age(2) is None


def test_single_decisions_know_what_came_next_and_where_it_ended():
    cut, goes_on = each(rows([2, 3], ended={1}))
    seen = cut.decisions
    assert cut.shape == (5, 1) and cut.group_N is None and cut.sample_N is None and not cut.facts
    assert seen.observation_NSO.flatten().tolist() == [0, 1, 100, 101, 102]
    assert seen.final_NO.flatten().tolist() == [1, 2, 101, 102, 103]
    assert seen.terminated_N.tolist() == [False] * 4 + [True]
    assert cut.reward_NS.flatten().tolist() == pytest.approx([0, 0.1, 10, 10.1, 10.2])
    assert goes_on.tolist() == [True, False, True, True, False]
    assert torch.equal(seen.next_NSO[:, 0], seen.final_NO) and torch.equal(seen.ended_NS[:, 0], seen.terminated_N)


def test_decisions_that_do_not_count_are_not_kept_nor_stepped_over():
    fresh = rows([2, 3])
    mask_NS = fresh.mask_NS.clone()
    mask_NS[1, 1] = False
    cut, goes_on = each(replace(fresh, mask_NS=mask_NS))
    assert cut.decisions.observation_NSO.flatten().tolist() == [0, 1, 100, 102]
    assert goes_on.tolist() == [True, False, False, False]


def columns(batch):
    found = {name: x for record in (batch, batch.decisions) for name, x in vars(record).items()} | dict(batch.facts)
    return {name: x for name, x in found.items() if isinstance(x, torch.Tensor)}


@pytest.mark.parametrize("parents", [None, [-1] * 6, [-1, 0, 0, 2, -1, 1]])
@pytest.mark.parametrize("lengths", [[1] * 6, [3] * 6, [4, 2, 3, 1, 1, 2]])
def test_parts_of_a_batch_are_what_a_choice_of_their_rows_is(lengths, parents):
    whole = replace(rows(lengths, ended={1, 4}), parent_N=None if parents is None else torch.tensor(parents))
    parts = split(whole, [2, 3, 1])
    shuffled = torch.tensor([4, 0, 2, 5, 1, 3]).split([2, 3, 1])
    asked = [
        *zip(parts, torch.arange(6).split([2, 3, 1]), strict=True),
        *zip(parted(whole, shuffled), shuffled, strict=True),
    ]
    for part, row_M in asked:
        ours, theirs = columns(part), columns(whole.select(row_M))
        assert ours.keys() == theirs.keys() and "truncated" in ours
        assert all(torch.equal(x, theirs[name]) for name, x in ours.items())
    copied = len(set(lengths)) > 1 or (parents is not None and max(parents) >= 0)
    assert copied != (parts[1].reward_NS.data_ptr() == whole.reward_NS[2:].data_ptr()), (
        "no copies where none are needed"
    )


def test_texts_are_not_cut():
    tokens = Tokens.row([1, 2], [3, 4])
    with pytest.raises(ValueError, match=r"not cut into decisions.*Buffer\(\)"):
        each(TrainBatch(mask_NS=torch.ones(1, 2, dtype=torch.bool), decisions=tokens))


def drawn_of(batch):
    return batch.select((batch.facts[MOVE] != FRESH).nonzero()[:, 0])


def test_the_newest_are_kept_and_any_of_them_is_drawn():
    store = Transitions(capacity=6, minibatch=1000, update_to_data=1.0, learning_starts=4).start(0)
    assert bool((store.take(rows([4])).facts[MOVE] == FRESH).all()), "nothing is drawn at first"
    batch = store.take(rows([4], start=10))
    drawn = drawn_of(batch)
    assert (batch.facts[MOVE] == FRESH).sum() == 4 and drawn.facts[MOVE].unique().tolist() == [0, 1, 2, 3]
    number_N = drawn.decisions.observation_NSO.flatten()
    held, count = number_N.unique(return_counts=True)
    assert held.tolist() == [2, 3, 10, 11, 12, 13]
    assert (count - 4000 / 6).abs().max() < 5 * (4000 / 6) ** 0.5
    assert sorted(set(drawn.version_NS.flatten().tolist())) == [0, 10], "old ones come with the version that drew them"


def test_newer_ones_are_likelier_where_age_counts():
    """Of four, weights 1, .75, .5, .25 from the newest: chi-square of 3 degrees of freedom, its 99.9 % point is 16.3."""
    store = Transitions(
        minibatch=4000, update_to_data=1 / 4, learning_starts=0, preference=AgeDecay(span=4.0, least=0.1)
    )
    number_N = drawn_of(store.start(0).take(rows([4]))).decisions.observation_NSO.flatten()
    counted, expected = torch.bincount(number_N.long()), torch.tensor([400.0, 800, 1200, 1600])
    assert float(((counted - expected) ** 2 / expected).sum()) < 16.3
    assert AgeDecay(span=10.0).weights(30)[-1] == pytest.approx(0.1)


ERRORS = torch.tensor([1.0, 0.0, 8.0, 3.0])  # of decisions 0 to 3


def by_errors(**settings):
    """A store of four decisions that has heard how far off each is, and the rows of the move after a fifth, decision 4."""
    preference = Prioritized(alpha=1.0, least=1e-9, **settings)
    spec = Transitions(minibatch=4000, update_to_data=0.4, learning_starts=0, preference=preference, capacity=5)
    store = spec.start(0)
    first = drawn_of(store.take(rows([4])))
    store.learned(first, lambda batch: ERRORS[batch.decisions.observation_NSO[:, 0, 0].long()])
    return store, drawn_of(store.take(rows([1], start=4)))


def test_those_that_are_furthest_off_are_likelier_and_count_less():
    """Weights 1, 0, 8, 3 and, of what is new, 8 as well: chi-square of 3 degrees of freedom, its 99.9 % point is 16.3."""
    store, drawn = by_errors(beta=1.0)
    error, number_N = torch.cat([ERRORS, torch.tensor([8.0])]), drawn.decisions.observation_NSO.flatten().long()
    counted, expected = torch.bincount(number_N, minlength=5), 4000 * error / 20
    assert counted[1] == 0 and float(((counted - expected) ** 2 / expected)[expected > 0].sum()) < 16.3
    weight_N = drawn.facts[IMPORTANCE][:, 0]
    assert torch.allclose(weight_N, 1 / error[number_N]), "1 / (N P), in units of the largest, which is decision 0's"
    assert store.metrics()["replay/importance"] == pytest.approx(float(weight_N.mean()), rel=1e-5)
    assert bool((by_errors(beta=0.0)[1].facts[IMPORTANCE] == 1).all()), "no correction"


def test_what_is_new_counts_as_far_off_as_the_worst_that_is_held_over_a_resume():
    store, _ = by_errors()
    store.take(rows([2], start=10))  # in the places of decisions 0 and 1
    assert store.error_P.tolist()[:5] == [8, 8, 8, 3, 8]
    resumed = store.spec.start(0)
    resumed.load_state_dict(store.state_dict())
    ours, theirs = (drawn_of(one.take(rows([4], start=30))) for one in (store, resumed))
    assert torch.equal(ours.facts[PLACE], theirs.facts[PLACE]) and torch.equal(store.error_P[:5], resumed.error_P[:5])


def test_by_no_power_of_errors_all_are_as_likely_bit_for_bit():
    spec = Transitions(minibatch=50, update_to_data=1.0, learning_starts=0)
    plain, other = (one.start(0) for one in (spec, replace(spec, preference=Prioritized(alpha=0.0, beta=1.0))))
    for start in (0, 10, 20):
        ours, theirs = (drawn_of(store.take(rows([3], start=start))) for store in (plain, other))
        other.learned(theirs, lambda batch: batch.decisions.observation_NSO[:, 0, 0])
        assert torch.equal(ours.decisions.observation_NSO, theirs.decisions.observation_NSO)
        assert bool((theirs.facts[IMPORTANCE] == 1).all())


def test_a_part_of_a_move_is_owed_to_the_next_step_and_the_ratio_is_kept_over_a_resume():
    spec = Transitions(minibatch=2, update_to_data=0.3, learning_starts=2)
    store, moves = spec.start(0), []
    for length in (1, 2, 3, 4, 1, 1, 5):
        batch = store.take(rows([length]))
        moves.append(int((batch.facts[MOVE] != FRESH).sum()) // 2)
        resumed = spec.start(0)
        resumed.load_state_dict(store.state_dict())
        store = resumed
    assert moves == [0, 0, 1, 1, 0, 1, 1] and store.metrics()["replay/update_to_data"] == pytest.approx(4 / 15)
    with pytest.raises(ValueError, match=r"holds 17 of 17 decisions, and store\.capacity is 9"):
        replace(spec, capacity=9).start(0).load_state_dict(store.state_dict())


def test_a_store_draws_the_same_whether_it_grew_or_had_the_room():
    """Room is made in pieces; what is drawn does not depend on it."""
    spec = Transitions(capacity=5000, minibatch=50, update_to_data=0.1, learning_starts=0)
    store, seen = spec.start(0), []
    for start in range(0, 3000, 1000):
        seen.append(drawn_of(store.take(rows([1000], start=start))).decisions.observation_NSO.flatten())
    assert store.held == 3000 and store.rows.shape[0] < 5000
    assert torch.cat(seen).max() >= 2000 and bool((torch.cat(seen) < 3000).all())


@pytest.mark.parametrize(
    "more", [{}, {"n": 3}, {"path": 2}, {"preference": AgeDecay(span=9.0)}, {"preference": Prioritized()}]
)
def test_a_buffer_on_disk_draws_the_same_as_one_in_memory_over_a_resume_and_leaves_no_file(tmp_path, more):
    spec = Transitions(capacity=40, minibatch=16, update_to_data=0.5, learning_starts=3, **more)
    memory, disk = spec.start(3), replace(spec, disk=str(tmp_path)).start(3)
    for number in range(6):  # 72 decisions, so that what is old is written over
        one, other = (columns(store.take(rows([5, 4, 3], start=12 * number))) for store in (memory, disk))
        torch.testing.assert_close(other, one, rtol=0, atol=0, equal_nan=True)
        if number in (1, 4):  # before and after it is full
            torch.save(disk.state_dict(), tmp_path / "state.pt")
            disk = replace(spec, disk=str(tmp_path)).start(3)
            disk.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=False))
            assert list(tmp_path.iterdir()) == [tmp_path / "state.pt"], "files without a name"


def test_rows_on_disk_are_in_a_file_and_a_state_is_a_copy_of_them(tmp_path):
    """What comes in later does not move a state."""
    store = Transitions(capacity=1000, disk=str(tmp_path), learning_starts=10**6).start(0)
    store.take(rows([12]))
    assert store.rows.shape[0] == 1000, "room for all at once"
    mapped = Path("/proc/self/maps")
    if mapped.exists():
        assert f"{tmp_path}/gimbal-rows-" in mapped.read_text()
    state = store.state_dict()
    before = state["rows"]["decisions"].observation_NSO.clone()
    store.take(rows([1000], start=50))
    assert before.flatten().tolist() == list(range(12)) == state["rows"]["decisions"].observation_NSO.flatten().tolist()


def test_a_disk_without_place_for_all_is_refused_before_anything_is_lost(tmp_path, monkeypatch):
    def full(*words):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    store = Transitions(capacity=5000, disk=str(tmp_path)).start(0)
    with pytest.raises(
        ValueError, match=r"no place for 5,000 decisions \(No space left on device\): lower store.capacity"
    ):
        store.take(rows([12]))
    assert not list(tmp_path.iterdir())


def test_a_directory_that_went_away_is_no_full_disk(tmp_path):
    place = tmp_path / "rows"
    place.mkdir()
    store = Transitions(capacity=50, disk=str(place)).start(0)
    store.take(rows([12]))
    place.rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"no place for 12 decisions \(No such file or directory\): it must exist"):
        store.state_dict()


def test_groups_are_drawn_whole_and_once():
    store = Buffer(capacity=100, draw=3).start(0)
    fresh = replace(rows([2, 3, 1, 2]), group_N=torch.tensor([0, 0, 1, 1]))
    first = store.take(fresh)
    assert sorted(first.group_N.tolist()) == [0, 0, 1, 1]
    second = store.take(replace(rows([5, 1], start=10), group_N=torch.tensor([2, 2])))
    assert second.shape[0] == 4 and all(second.group_N.tolist().count(g) == 2 for g in second.group_N.tolist())


def test_joined_rows_are_padded_and_lack_nothing():
    one, other = rows([2]), rows([4], start=10)
    both = joined([replace(one, facts={}), other])
    assert both.shape == (2, 4) and both.mask_NS.tolist() == [[True, True, False, False], [True] * 4]
    assert both.facts["truncated"].tolist() == [0, 4]
    assert torch.equal(both.select(torch.tensor([0])).decisions.observation_NSO, one.decisions.observation_NSO)


def tree(index, *, role="", parts=False):
    """A group of two trunks and two branches off the first, which another one continues; scores differ."""
    task, ids = Task(id="t"), [index + 1, 7, 8, 9]

    def row(sample, tail, fork=None, **more):
        tokens = Tokens.row([0], [*ids[: fork[1]], *tail] if fork else tail)
        mask_S = torch.arange(tokens.shape[1]) >= (fork[1] if fork else 0)
        return made.rollout(
            task, sample=sample, decisions=tokens, fork=fork, mask_S=mask_S, score=float((sample + index) % 3), **more
        )

    turns = {"turn_S": torch.ones(4, dtype=torch.long), "part_S": torch.ones(4, dtype=torch.long)} if parts else {}
    trunks = [row(0, ids, role=role, **turns), row(1, [index + 2], role="b")]
    return Group.of(index, task, [*trunks, row(2, [5], (0, 2)), row(3, [6, 6], (0, 3)), row(4, [4], (2, 1))])


def normalized(batch):
    """Row by row what GroupNormalized is to give: of one row for each episode."""
    score_N, found = batch.reward_NS.sum(-1).double(), torch.zeros(batch.shape[0], dtype=torch.float64)
    for number in batch.group_N.unique():
        own = batch.group_N == number
        found[own] = (score_N[own] - score_N[own].mean()) / (score_N[own].std() + 1e-6)
    return found.float()[:, None] * batch.mask_NS


@pytest.mark.parametrize("alone", [True, False])
def test_rows_of_several_batches_keep_to_their_own_episodes_and_trunks(alone):
    """Numbers within a batch begin at 0 in each: joined as they are, an episode would be one with another batch's."""
    batches = [pack([tree(2 * n), tree(2 * n + 1)]) for n in range(4)]
    store = Buffer(capacity=30, draw=30 if alone else 12).start(0)
    for fresh in batches:
        found = store.take(fresh)
    assert found.shape[0] == (30 if alone else 15) and not found.several
    assert torch.allclose(GroupNormalized().of_rows(found), normalized(found), atol=1e-5)
    assert len({*zip(found.group_N.tolist(), found.sample_N.tolist(), strict=True)}) == found.shape[0]
    for n, (parent, fork) in enumerate(zip(found.parent_N.tolist(), found.fork_N.tolist(), strict=True)):
        assert (parent >= 0) == (fork > 0)
        if parent >= 0:
            ids_NL = found.decisions.ids_NL
            assert found.group_N[n] == found.group_N[parent] and torch.equal(
                ids_NL[n, : fork + 1], ids_NL[parent, : fork + 1]
            )
    whole = {number: found.group_N == number for number in found.group_N.unique().tolist()}
    for number, own in whole.items():
        expected = pack([tree(number)])
        credit_NS, width = LeafMean().of_rows(expected) * expected.mask_NS, expected.shape[1]
        found_NS = (LeafMean().of_rows(found) * found.mask_NS)[own][:, :width]
        assert torch.equal(found_NS, credit_NS) and credit_NS.any(), "the tree of each group is its own"


def test_all_numbers_within_a_batch_hold_in_the_joined_one():
    one, other = (
        pack([tree(0, role="c", parts=True)]),
        replace(pack([tree(1, role="a")]), row_N=torch.arange(5)),
    )
    one = replace(one, row_N=torch.arange(5))
    both = joined([one, other])
    acted = [both.roles[place] for place in both.role_N.tolist()]
    assert acted == [batch.roles[place] for batch in (one, other) for place in batch.role_N.tolist()]
    assert acted[0] == "c" and acted[5] == "a" and both.roles == ("", "a", "b", "c")
    assert both.row_N.tolist() == list(range(10)) and both.parent_N.tolist() == [-1, -1, 0, 0, 2, -1, -1, 5, 5, 7]
    assert both.part_NS[0].tolist() == [1] * 4 + [0] and both.part_NS[5:].sum() == 0 and both.turn_NS[0].sum() == 4
    wide = replace(one, facts={**one.facts, "copies": torch.ones(5, 9, 2)})
    assert joined([wide, other]).facts["copies"].shape == (10, 9, 2), "of a second size of its own"
    assert len(both.episode_N.unique()) == 10


def test_roles_are_the_same_after_a_resume():
    store, resumed = (Buffer(capacity=20, draw=20).start(0) for _ in range(2))
    store.take(pack([tree(0, role="c")]))
    resumed.load_state_dict(store.state_dict())
    found = resumed.take(pack([tree(1, role="a")]))
    acted = {
        (group, found.roles[role]) for group, role in zip(found.group_N.tolist(), found.role_N.tolist(), strict=True)
    }
    assert acted == {(0, "c"), (0, "b"), (0, ""), (1, "a"), (1, "b"), (1, "")}


def test_an_episode_of_several_rows_stays_one():
    task = Task(id="t")
    rows_of = [made.rollout(task, sample=0, row=n, score=1.0) for n in range(2)]
    group = Group(index=0, task=task, episodes=(Episode(rows=tuple(rows_of)),))
    batches = [pack([replace(group, index=n)]) for n in range(3)]
    assert joined([joined(batches[:2]), batches[2]]).episode_N.unique(return_counts=True)[1].tolist() == [2, 2, 2]


def test_no_group_is_cut_where_room_runs_out():
    store = Buffer(capacity=7, draw=7).start(0)
    for n in range(4):
        found = store.take(pack([tree(n)]))
    assert sorted(found.group_N.tolist()) == [2] * 5 + [3] * 5 and store.metrics()["replay/held"] == 10
    with pytest.raises(ValueError, match=r"more rows than it keeps: store\.draw=8, or store\.capacity=16"):
        Buffer(capacity=8, draw=16)


@pytest.mark.parametrize(
    "spec", [Buffer(capacity=9, draw=5), Transitions(capacity=5, minibatch=4, learning_starts=0, n=2)]
)
def test_a_buffer_that_was_saved_draws_the_same(spec, tmp_path):
    store, other = (spec.start(3) for _ in range(2))
    store.take(rows([4, 2]))
    torch.save(store.state_dict(), tmp_path / "state.pt")
    with torch.serialization.safe_globals([Steps]):
        other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    a, b = (one.take(rows([3], start=10)) for one in (store, other))
    assert torch.equal(a.decisions.observation_NSO, b.decisions.observation_NSO) and torch.equal(a.mask_NS, b.mask_NS)
    empty = spec.start(0)
    empty.load_state_dict(spec.start(0).state_dict())
    assert empty.rows is None


def test_a_policy_gradient_on_old_data_must_weigh_it():
    whole = Buffer(draw=12)
    with pytest.raises(ValueError, match="nothing here weighs it by how it was drawn"):
        compose.check(small_run(store=whole, correction=None))
    with pytest.raises(ValueError, match="this update learns from whole ones"):
        compose.check(small_run(store=Transitions(), correction=TruncatedWeight()))
    warned = compose.check(small_run(store=whole, correction=TruncatedWeight()))
    assert any("gives the bound up" in sentence for sentence in warned)
    said = api.statement(recipes.load("sac", {"store.update_to_data": 0.25}))
    assert (
        "trained on decisions of any version so far" in said
        and "0.25 updates for each env step after the first 100" in said
    )
    assert "(at most 10 env steps) and 1 update for each env step" in api.statement(recipes.load("swd")), "of a segment"
    assert "(at most 1,000 env steps) and 1 update for" in api.statement(recipes.load("sac", {"engine.segment": 0}))
    assert "(at most 128 env steps) and 0.25 updates for" in api.statement(recipes.load("dqn")), "of four segments"
    assert "(at most 1,000 env steps) and 250 updates;" in api.statement(recipes.load("iql")), "of recordings"
    assert compose.check(recipes.load("sac")) == [], "soft actor-critic learns from decisions of any age"


@pytest.mark.parametrize("wrong", [{"capacity": 0}, {"draw": 0}])
def test_bad_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match="both count rows"):
        Buffer(**wrong)


@pytest.mark.parametrize("wrong", [{"capacity": 0}, {"minibatch": 0}, {"n": 0}, {"learning_starts": -1}])
def test_bad_numbers_of_transitions_are_refused(wrong):
    with pytest.raises(ValueError, match="they count decisions"):
        Transitions(**wrong)
    with pytest.raises(ValueError, match=r"update_to_data is 0"):
        Transitions(update_to_data=0.0)
