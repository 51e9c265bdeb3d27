"""The accounts of who chose what: a bias that is known comes out again."""

import pickle
from functools import cache

import made
import numpy as np
import pytest
import torch

from gimbal.ops import philox
from gimbal.policies.token import Tokens
from gimbal.records import Group, Task
from gimbal.report.selection import Selection

CHANCE = np.linspace(0.05, 0.95, 10)  # of success, task by task
LENGTH = 4 + 2 * np.arange(10)[::-1]  # the harder, the longer; one more for a failure
ASKED = np.where(np.arange(10) < 5, 3.0, 1.0) / 20  # the curriculum asks for the harder half three times as often
SIZE = np.where(np.arange(10) < 3, 8, 4)  # the budget gives the hardest three twice the rollouts
GROUPS = 12_000


@cache
def rollout(place, sample, right):
    decisions = Tokens.row([0], [0] * int(LENGTH[place] + (not right)))
    zero = torch.zeros(decisions.shape[1])
    return made.rollout(
        task=Task(id=str(place)),
        sample=sample,
        decisions=decisions,
        behavior_S=zero,
        reward_S=zero,
        score=float(right),
        scores={"right": float(right)},
    )


@cache
def group(place, successes):
    """Which of the samples succeed has no bearing on the accounts."""
    size = int(SIZE[place])
    return Group.of(0, Task(id=str(place)), [rollout(place, n, n < successes) for n in range(size)])


def counts_of(place):
    """Binomial, whose mean over the groups of a task is its chance to 1 in 10^3."""
    return philox("successes", place).binomial(int(SIZE[place]), CHANCE[place], size=round(GROUPS * ASKED[place]))


@pytest.fixture(scope="module")
def books():
    """Of groups that are all wrong or all right none is trained on, and the longest rollout of the others is taken out."""
    selection, index = Selection(), 0
    for place in range(10):
        for successes in counts_of(place).tolist():
            whole = group(place, successes)
            one = Group(index=index, task=whole.task, episodes=whole.episodes)
            selection.dispatched(index, 0)
            selection.scored(one, 5)
            if 0 < successes < len(whole.episodes):
                selection.trained(one.keep(one.rollouts[:-1]))
            else:
                selection.lost(index, "zero_variance")
            index += 1
    return selection


def near(value):
    return pytest.approx(value, rel=0.02)


def test_each_population_has_the_bias_that_it_was_given(books):
    found = books.metrics()
    fails, long = 1 - CHANCE, LENGTH + 1 - CHANCE
    by_task = {"listed": np.full(10, 0.1), "asked": ASKED, "sampled": ASKED * SIZE / (ASKED * SIZE).sum()}
    for population, weight in by_task.items():
        assert found[f"selection/{population}/difficulty"] == near((weight * fails).sum()), population
        assert found[f"selection/{population}/success"] == near((weight * CHANCE).sum()), population
        assert found[f"selection/{population}/length"] == near((weight * long).sum()), population
    assert found["selection/listed/tasks"] == 10
    apart = [found[f"selection/{name}/difficulty"] for name in ("listed", "asked", "sampled")]
    assert apart[0] < 0.9 * apart[1] < apart[2], "three figures that a mistake would exchange"


def test_what_filters_leave_is_the_law_of_mixed_groups(books):
    """P(mixed) = 1 - p^G - (1-p)^G, and of a mixed group the last rollout, a failure, has left."""
    found, mixed = books.metrics(), 1 - CHANCE**SIZE - (1 - CHANCE) ** SIZE
    fails = (SIZE * (1 - CHANCE) - SIZE * (1 - CHANCE) ** SIZE) / mixed  # E(failures | mixed)
    rollouts = ASKED * mixed * (SIZE - 1)
    assert found["selection/trained/difficulty"] == near((rollouts * fails / SIZE).sum() / rollouts.sum())
    assert found["selection/trained/success"] == near((ASKED * mixed * (SIZE - fails)).sum() / rollouts.sum())
    length = (ASKED * mixed * (LENGTH * (SIZE - 1) + fails - 1)).sum() / rollouts.sum()
    assert found["selection/trained/length"] == near(length)
    all_of_it = (ASKED * SIZE).sum()
    assert found["selection/lost/zero_variance"] == near((ASKED * SIZE * (1 - mixed)).sum() / all_of_it)
    assert found["selection/lost/filtered"] == near((ASKED * mixed).sum() / all_of_it)


def test_the_books_go_on_where_they_were(books):
    again = Selection()
    again.load_state_dict(pickle.loads(pickle.dumps(books.state_dict())))
    assert again.metrics() == books.metrics()


def booked(*groups):
    selection = Selection()
    for index, one in enumerate(groups):
        selection.dispatched(index, 0)
        selection.scored(Group(index=index, task=one.task, episodes=one.episodes), 1)
        selection.lost(index, "dice")
    return selection.metrics()


def populations(metrics):
    return {key.split("/")[1] for key in metrics}


def test_only_what_can_differ_is_written():
    assert populations(booked(group(4, 1), group(5, 2))) == {"sampled", "lost"}
    assert populations(booked(group(0, 1), group(5, 2))) == {"asked", "sampled", "lost"}
    assert populations(booked(group(4, 1), group(4, 2))) == {"listed", "asked", "sampled", "lost"}
    assert not populations(Selection().metrics())


def test_what_is_under_way_does_not_count():
    selection = Selection()
    for index in range(2):
        selection.dispatched(index, 0)
        one = group(4, 1)
        selection.scored(Group(index=index, task=one.task, episodes=one.episodes), 1)
    assert selection.metrics() == {}
