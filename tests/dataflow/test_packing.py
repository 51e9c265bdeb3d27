"""Rows of episodes in a batch: labels, roles, parents, and rewards that add up to the return of the episode in every row."""

import dataclasses

import made
import pytest
import torch

from gimbal.advantages import GAE, ReturnToGo
from gimbal.dataflow.packing import pack
from gimbal.ops import last_row_of_episode
from gimbal.policies.token import Tokens
from gimbal.records import Episode, Group


def row(sample, length, rewards=None, **fields):
    reward_S = torch.zeros(length) if rewards is None else torch.tensor(rewards)
    return made.rollout(sample=sample, decisions=Tokens.row([1], [2] * length), reward_S=reward_S, **fields)


def cut():
    plan = row(0, 2, [0.5, 0.0], role="planner")
    act = row(0, 3, [0.0, 0.25, 0.0], role="actor", mask_S=torch.tensor([False, True, True]), fork=(0, 1), row=1)
    return Episode(rows=(plan, act))


def test_every_row_ends_with_what_its_episode_earned():
    group = Group(index=4, task=made.TASK, episodes=(cut(), Episode.of(row(1, 1, role="actor"))))
    batch = pack([group, dataclasses.replace(group, index=5)])
    assert batch.episode_N.tolist() == [0, 0, 1, 2, 2, 3] and batch.group_N.tolist() == [4, 4, 4, 5, 5, 5]
    assert batch.parent_N.tolist() == [-1, 0, -1, -1, 3, -1] and batch.fork_N.tolist() == [0, 1, 0, 0, 1, 0]
    assert [batch.roles[i] for i in batch.role_N] == ["planner", "actor", "actor"] * 2
    assert batch.return_N.tolist() == [0.75, 0.75, 0.0] * 2
    assert batch.several and last_row_of_episode(batch.mask_NS, batch.episode_N).tolist() == [1, 1, 2, 4, 4, 5]
    scored = group.keep([dataclasses.replace(r, score=2.0) for r in group.rollouts])
    assert pack([scored]).return_N.tolist() == [2.75, 2.75, 2.0]
    assert pack([scored]).reward_NS[:2].tolist() == [[0.5, 2.25, 0.0], [0.0, 0.25, 2.5]]


def test_one_row_an_episode_is_as_it_was():
    batch = pack([Group.of(0, made.TASK, [row(0, 2, [0.1, 0.2], score=1.0), row(1, 1)])])
    assert batch.reward_NS.tolist() == [[pytest.approx(0.1), pytest.approx(1.2)], [0.0, 0.0]]
    assert not batch.several and last_row_of_episode(batch.mask_NS, batch.episode_N).tolist() == [0, 1]


def test_length_counts_what_rows_share_once():
    assert cut().length == 4 and cut().drawn == 4 and cut().earned == 0.75


def test_a_masked_reward_is_that_of_the_decision_before_it():
    """An environment paid 2 while what it said was read, and 1 before the policy had said anything. No estimator loses it."""
    mask_S = torch.tensor([False, True, True, False, False, True, True])
    paid = row(0, 7, [1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 4.0], mask_S=mask_S)
    other = row(1, 7, [0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 4.0], mask_S=mask_S)  # the same, paid where it was earned
    batch = pack([Group.of(0, made.TASK, [paid, other])])
    assert batch.return_N.tolist() == [7.0, 7.0] == [paid.earned, other.earned]
    assert ReturnToGo(gamma=1.0)(batch).tolist() == [[0, 7, 6, 0, 0, 4, 4]] * 2
    assert ReturnToGo(gamma=0.0)(batch).tolist() == [other.reward_S.tolist()] * 2
    valued = dataclasses.replace(batch, value_NS=torch.zeros_like(batch.reward_NS), bootstrap_N=torch.zeros(2))
    assert torch.equal(GAE(gamma=0.5, lam=1.0)(valued), ReturnToGo(gamma=0.5)(batch))
    assert torch.equal(GAE(gamma=1.0, lam=0.0)(valued), batch.reward_NS)
    scored = Group.of(0, made.TASK, [dataclasses.replace(paid, score=3.0)])
    assert pack([scored]).reward_NS.tolist() == [[0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 7.0]]


def test_where_every_decision_counts_or_none_does_rewards_stay():
    full, none = row(0, 2, [1.0, 0.5]), row(1, 2, [1.0, 0.5], mask_S=torch.zeros(2, dtype=torch.bool))
    assert pack([Group.of(0, made.TASK, [full, none])]).reward_NS.tolist() == [[1.0, 0.5]] * 2
