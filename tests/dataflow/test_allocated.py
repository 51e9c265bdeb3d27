"""Rollouts shared out by the chance of a mixed group, and where that chance comes from."""

import itertools
from dataclasses import replace

import made
import numpy as np
import pytest
import torch

from gimbal.dataflow.budgets.fixed import FixedBudget
from gimbal.dataflow.curricula.allocated import Allocated, predict, text_features
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.environments.dataset import Rows
from gimbal.ops.allocation import allocate, mixed_failures
from gimbal.records import Group, Task


def share(chances, total, least=2, most=32):
    return allocate(mixed_failures(most, np.array(chances)), total, least).tolist()


def group_of(task, rewards):
    empty = torch.zeros(1)
    rollouts = tuple(
        made.rollout(
            task=task, sample=n, behavior_S=empty, reward_S=empty, score=float(reward), scores={"right": float(reward)}
        )
        for n, reward in enumerate(rewards)
    )
    return Group.of(0, task, rollouts)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_the_utility_is_the_expected_failures_of_a_mixed_group(p):
    for size in range(6):
        expected = sum(
            np.prod([p if x else 1 - p for x in rewards]) * (size - sum(rewards))
            for rewards in itertools.product((0, 1), repeat=size)
            if 0 < sum(rewards) < size
        )
        assert mixed_failures(5, np.array([p]))[0, size] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("p", [0.5, 0.7, 0.9])
def test_equal_chances_are_a_uniform_allocation(p):
    assert share([p] * 5, 40) == [8] * 5
    assert sorted(share([p] * 5, 42)) == [8, 8, 8, 9, 9]


def test_what_is_certain_gets_the_least_and_the_rest_is_not_spent():
    assert share([0.0, 1.0, 0.5], 24) == [2, 2, 20]
    assert share([0.0, 1.0], 24) == [2, 2]
    assert share([0.5, 0.5], 100, most=10) == [10, 10]


def test_hard_prompts_get_more_than_easy_ones():
    counts = share([0.3, 0.7], 16)
    assert counts[0] > counts[1] and sum(counts) == 16


def test_looking_ahead_finds_what_the_next_one_hides():
    """On a hard prompt the first increments grow; one at a time all would go to the easy one."""
    chances, total = [0.05, 0.9], 24
    utility_PB = mixed_failures(32, np.array(chances))
    value = {b: utility_PB[0, b] + utility_PB[1, total - b] for b in range(2, total - 1)}
    counts = share(chances, total)
    assert value[counts[0]] == max(value.values())


@pytest.mark.parametrize("seed", range(8))
def test_near_the_best_of_all_allocations(seed):
    chance_P = np.random.default_rng(seed).uniform(0.02, 0.98, 3)
    utility_PB = mixed_failures(12, chance_P)
    worth = lambda counts: sum(utility_PB[n, b] for n, b in enumerate(counts))  # noqa: E731
    best = max(worth(c) for c in itertools.product(range(2, 13), repeat=3) if sum(c) <= 18)
    counts = allocate(utility_PB, 18, 2)
    assert counts.sum() <= 18 and counts.min() >= 2 and worth(counts) >= 0.97 * best


def test_a_prediction_by_hand():
    """Two prompts at distance d: the kernel is 1 on the diagonal and exp(-1) off it."""
    x, y = np.array([[-1.0], [1.0]]), np.array([0.0, 1.0])
    k = np.exp(-1.0)
    found = predict(x, x, y, np.ones(2), 1.0)
    weight = 0.5 / (2 - k)  # of (K + I)^-1 (y - 1/2), which is antisymmetric
    assert found == pytest.approx([0.5 - weight * (1 - k), 0.5 + weight * (1 - k)], abs=1e-6)
    assert predict(x, x[:0], y[:0], y[:0], 1.0).tolist() == [0.5, 0.5]
    assert predict(x, x, np.ones(2), np.ones(2), 1.0).tolist() == [1.0, 1.0]


def test_prompts_alike_have_one_chance_and_a_context_of_one_prompt_its_mean():
    x = np.array([text_features("12 + 3 =")] * 4)
    assert predict(x[:2], x, np.array([0.0, 1.0, 1.0, 1.0]), np.array([3.0, 1, 1, 1]), 1e6).tolist() == [0.5, 0.5]
    assert not np.array_equal(text_features("12 + 3 ="), text_features("12 - 3 ="))


def auc(chance, success):
    good, bad = chance[success == 1], chance[success == 0]
    return (good[:, None] > bad).mean() + 0.5 * (good[:, None] == bad).mean()


def test_it_follows_a_policy_that_improves_and_mixes_more_groups():
    rng = np.random.default_rng(0)
    hardness = rng.uniform(-2, 2, (300, 1))
    mixed = {"uniform": 0.0, "allocated": 0.0}
    for skill in (-1.5, 0.0, 1.5):
        true = 1 / (1 + np.exp(3 * (hardness[:, 0] - skill)))
        seen, asked = np.arange(200), np.arange(200, 300)
        reward = rng.binomial(4, true[seen]) / 4
        chance = predict(hardness[asked], hardness[seen], reward, np.full(200, 4.0), 1.0)
        assert auc(chance, rng.binomial(1, true[asked])) > 0.8
        assert abs(chance.mean() - true[asked].mean()) < 0.1
        counts = {"uniform": np.full(100, 8), "allocated": allocate(mixed_failures(32, chance), 800, 2)}
        for name, count in counts.items():
            mixed[name] += sum(mixed_failures(32, true[asked[n : n + 1]])[0, b] for n, b in enumerate(count))
    assert mixed["allocated"] > 1.2 * mixed["uniform"]


def tasks(chars="abcd", size=8):
    return Rows(rows=[{"prompt": f"{chars[n % len(chars)] * 6} {n}"} for n in range(size)])


def test_tasks_carry_their_share_and_the_budget_heeds_it():
    live = Allocated(prompts=4, rollouts=5).start(tasks(), 0)
    plain = Epochs().start(tasks(), 0)
    for _ in range(8):
        task = live.next()
        assert task.columns["num_generations"] == 5 and task.columns["expected"] == 0.5
        assert task.id == plain.next().id
        assert FixedBudget(8, 64).plan([task])[0].rollouts == 5
    assert FixedBudget(8, 64).plan([Task(id="x")])[0].rollouts == 8


def test_what_succeeds_always_gets_fewer():
    live = Allocated(prompts=8, rollouts=6, name="right").start(tasks("ab"), 0)
    for _ in range(3):
        for task in [live.next() for _ in range(8)]:
            live.observe(group_of(task, [1, 1, 1, 1] if "a" in task.prompt else [1, 0, 0, 1]))
    counts = {"a": [], "b": []}
    for task in [live.next() for _ in range(8)]:
        counts[task.prompt[0]].append(task.columns["num_generations"])
    assert max(counts["a"]) < min(counts["b"]) and sum(counts["a"] + counts["b"]) == 48


def test_it_resumes_to_the_same_tasks_and_forgets_what_is_old():
    spec = Allocated(prompts=3, rollouts=4, context=5)
    live = spec.start(tasks(), 0)
    for n in range(7):
        live.observe(group_of(live.next(), [n % 2, 1, 0]))
    other = spec.start(tasks(), 0)
    other.load_state_dict(live.state_dict())
    assert len(live.context) == 5
    assert [live.next() for _ in range(9)] == [other.next() for _ in range(9)]


def test_a_task_that_cannot_be_read_costs_none_of_those_before_it(monkeypatch):
    """They would be passed over in this epoch: the run is saved, and goes on once the file is back."""
    spec = Allocated(order=Epochs(shuffle=False), prompts=3, rollouts=4)
    tasks = Rows(rows=[{"prompt": str(n)} for n in range(6)])
    broken, read = spec.start(tasks, 0), Rows.__getitem__

    def unreadable(rows, index):
        if index == 1:
            raise ValueError("written to")
        return read(rows, index)

    with monkeypatch.context() as patch:
        patch.setattr(Rows, "__getitem__", unreadable)
        with pytest.raises(ValueError, match="written to"):
            broken.next()
    resumed = spec.start(tasks, 0)
    resumed.load_state_dict(broken.state_dict())
    assert [resumed.next().prompt for _ in range(6)] == list("012345")


def test_numbers_of_a_column_are_features():
    live = Allocated(features="hard").start(tasks(), 0)
    easy, hard = (Task(id=str(n), columns={"hard": [float(n)]}) for n in (0, 1))
    for _ in range(4):
        live.observe(group_of(easy, [1, 1]))
        live.observe(group_of(hard, [0, 0]))
    chance = live.predict([easy, hard])
    assert chance[0] > 0.6 and chance[1] < 0.4


def test_what_cannot_be_is_said():
    for wrong in ({"least": 1}, {"least": 9}, {"most": 4}, {"prompts": 0}, {"context": 0}, {"noise": 0.0}):
        with pytest.raises(ValueError, match="Allocated"):
            replace(Allocated(), **wrong)
