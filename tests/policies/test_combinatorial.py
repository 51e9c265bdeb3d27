"""The best of combinatorially many actions against all of them, one by one."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from gimbal.policies.combinatorial import Combinatorial
from gimbal.policies.program import BinaryProgram

pytest.importorskip("scipy")

TIGHT = Combinatorial(
    observations=3,
    actions=6,
    rows=((1.0, 2.0, 0.0, 1.5, 1.0, 3.0), (1.0, 0.0, 1.0, 0.0, 1.0, 0.0)),
    limits=(4.0, 2.0),
    hidden=(6, 5),
    scale=2.0,
)
SEEN = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))


def every(spec):
    """All feasible actions."""
    found = np.array(list(product([0.0, 1.0], repeat=spec.actions)))
    return found[(found @ np.array(spec.rows).T <= np.array(spec.limits)).all(1)]


@pytest.mark.parametrize("hidden", [(), (7,), (6, 5)])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_feasible_action_is_better_than_the_programs(hidden, seed):
    spec = replace(TIGHT, hidden=hidden)
    policy = spec.load(seed).requires_grad_(False)
    with torch.no_grad():  # units that are always on, always off, and in between
        for weight in policy.parameters():
            weight.mul_(3)
    feasible = torch.from_numpy(every(spec).astype(np.float32))
    best = policy.best(SEEN)
    for seen, action in zip(SEEN, best, strict=True):
        value = policy.values(seen[None].expand(len(feasible), -1), feasible)
        assert float(policy.values(seen[None], action[None])) == pytest.approx(float(value.max()), abs=1e-4)
        assert action.tolist() in feasible.tolist()
    assert len(set(map(tuple, best.tolist()))) > 1 or not hidden, "another action in another state"


def test_without_hidden_layers_it_is_a_knapsack():
    """Worth 6 and 5 and 5 at 4, 3 and 3 of 6: the two of 5, not the best by itself."""
    program = BinaryProgram(np.array([[4.0, 3.0, 3.0]]), np.array([6.0]))
    assert program.best([(np.array([[6.0, 5.0, 5.0]]), np.zeros(1))]).tolist() == [0, 1, 1]
    assert program.best([(np.array([[-1.0, -2.0, 0.5]]), np.zeros(1))]).tolist() == [0, 0, 1]


def test_bounds_by_the_rows_are_bounds_and_tighter_than_all_of_it():
    spec = TIGHT
    program, feasible = BinaryProgram(np.array(spec.rows), np.array(spec.limits)), every(spec)
    gain = np.random.default_rng(0).uniform(0, 1, (20, 6))
    bound = program.most(gain)
    assert (bound >= (gain @ feasible.T).max(1) - 1e-9).all() and (bound < gain.sum(1)).all()


def test_it_explores_by_feasible_actions_to_which_nothing_can_be_added():
    policy = TIGHT.load(0)
    noise = torch.randn(400, 7, generator=torch.Generator().manual_seed(0))
    seen = SEEN[:1].expand(400, -1)
    action, _ = policy.draw(seen, noise, torch.ones(400))
    rows, limits = np.array(TIGHT.rows), np.array(TIGHT.limits)
    for one in np.unique(action.numpy(), axis=0):
        assert (rows @ one <= limits).all()
        assert all((rows @ (one + np.eye(6)[n]) > limits).any() for n in range(6) if not one[n])
    assert bool((action.mean(0) > 0.05).all()), "each is tried"
    policy.explore.fill_(0.3)
    action, _ = policy.draw(seen, noise, torch.ones(400))
    best = policy.best(SEEN[:1])
    assert 0.6 < float((action == best).all(1).float().mean()) < 0.85
    greedy, logprob = policy.draw(seen, noise, torch.zeros(400))
    assert bool((greedy == best).all()) and not bool(logprob.any())


def test_it_is_saved_with_its_constraints(tmp_path):
    policy = TIGHT.load(3)
    policy.explore.fill_(0.25)
    policy.save(tmp_path)
    other = replace(TIGHT, model=str(tmp_path)).load(9)
    assert torch.equal(policy.best(SEEN), other.best(SEEN)) and float(other.explore) == 0.25
    assert torch.equal(policy.values(SEEN, torch.ones(8, 6)), other.values(SEEN, torch.ones(8, 6)))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"rows": ()}, "0 rows and 2 limits"),
        ({"limits": (1.0,)}, "2 rows and 1 limits"),
        ({"actions": 5}, r"6 costs, and there are 5 actions: set policy\.rows"),
        ({"limits": (4.0, -1.0)}, "limits has -1; costs and limits are from 0"),
        ({"limits": (4.0, math.nan)}, "limits has nan"),
        ({"limits": (4.0, 1e30)}, "from 0 to 1e\\+06"),
        ({"scale": 0.0}, "scale is 0; it is the size"),
    ],
)
def test_constraints_that_mean_nothing_are_refused(settings, reason):
    with pytest.raises(ValueError, match=reason):
        replace(TIGHT, **settings).load()
