"""SEQUOIA's update against sums taken here, its limiting cases, and what it remembers."""

import copy
import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from gimbal.dataflow.replay.transitions import MOVE
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.combinatorial_q import BEST, CombinatorialQ
from gimbal.policies.combinatorial import Combinatorial
from gimbal.policies.control import Steps
from gimbal.records import TrainBatch

pytest.importorskip("scipy")

K = 6
SPEC = Combinatorial(observations=3, actions=4, rows=((1.0,) * 4,), limits=(2.0,), hidden=(5,))
PLAIN = Optimization(learning_rate=0.05, optimizer="sgd", max_grad_norm=math.inf)
FEASIBLE = torch.tensor([a for a in product([0.0, 1.0], repeat=4) if sum(a) <= 2])


def update_of(**settings):
    return CombinatorialQ(**{"gamma": 0.9, "tau": 0.3, "optimization": PLAIN, **settings})


def batch_of(move=1, seed=0):
    g = torch.Generator().manual_seed(seed)
    steps = Steps(
        observation_NSO=torch.randn(K, 1, 3, generator=g),
        action_NSA=FEASIBLE[torch.randint(len(FEASIBLE), (K,), generator=g)][:, None],
        final_NO=torch.randint(0, 2, (K, 3), generator=g).float(),
        length_N=torch.ones(K, dtype=torch.long),
        terminated_N=torch.arange(K) % 3 == 0,
    )
    facts = {MOVE: torch.full((K,), move)}
    mask = torch.ones(K, 1, dtype=torch.bool)
    return TrainBatch(mask_NS=mask, reward_NS=torch.randn(K, 1, generator=g), decisions=steps, facts=facts)


def learner(update):
    made = Learner(SPEC.load(1), update, seed=0)
    with torch.no_grad():
        for weight in made.models["target"].parameters():
            weight.add_(0.2)
    return made


def loss_of(made, batch):
    return next(made.update.losses(made.models, made.update.survey(made.models, made.prepare(batch))[0]))


def largest(policy, seen):
    with torch.no_grad():
        return torch.stack([policy.values(one.expand(len(FEASIBLE), -1), FEASIBLE).max() for one in seen[:, None]])


def target_of(made, batch):
    steps = batch.decisions
    return batch.reward_NS[:, 0] + 0.9 * (~steps.terminated_N).float() * largest(made.models["target"], steps.final_NO)


def value_of(made, batch):
    steps = batch.decisions
    return made.policy.values(steps.observation_NSO[:, 0], steps.action_NSA[:, 0])


def test_sequoia_is_its_equations():
    made, batch = learner(update_of()), batch_of()
    expected = (value_of(made, batch) - target_of(made, batch)).square().mean() / 2
    found = loss_of(made, batch).value
    torch.testing.assert_close(found, expected)
    weights = list(made.policy.parameters())
    torch.testing.assert_close(torch.autograd.grad(found, weights), torch.autograd.grad(expected, weights))
    errors = made.update.errors(made.models, made.update.survey(made.models, made.prepare(batch))[0])
    torch.testing.assert_close(errors, (value_of(made, batch) - target_of(made, batch)).abs().detach())


def test_with_renew_1_every_move_has_the_largest_value_and_else_never_more():
    """Q' changes so much that another action is the best; what is remembered is then valued lower."""
    below = []
    for renew in (1, 10):
        made, batch = learner(update_of(renew=renew)), batch_of()
        loss_of(made, batch)
        with torch.no_grad():
            for weight, other in zip(made.models["target"].parameters(), SPEC.load(7).parameters(), strict=True):
                weight.copy_(4 * other)
        told = loss_of(made, replace(batch, facts={MOVE: torch.full((K,), 2)})).metrics["q/target"]
        below.append(float(target_of(made, batch).mean()) - told)
    assert below[0] == pytest.approx(0.0, abs=1e-5) and below[1] > 0.01


def test_one_program_serves_equal_states_until_it_is_renewed():
    made, solved = learner(update_of(renew=3)), []
    batch = batch_of()
    different = len(batch.decisions.final_NO.unique(dim=0))
    for move in range(7):
        told = made.step(made.prepare(replace(batch, facts={MOVE: torch.full((K,), move)})))
        solved.append(told["program/solved"] / different)
    assert different < K and solved == [1, 1, 1, 2, 2, 2, 3]


def test_without_a_future_q_is_fitted_to_rewards_and_nothing_is_solved():
    made, batch = learner(update_of(gamma=0.0)), batch_of()
    expected = (value_of(made, batch) - batch.reward_NS[:, 0]).square().mean() / 2
    torch.testing.assert_close(loss_of(made, batch).value, expected)
    assert not made.models.parts[BEST].known and made.models.parts[BEST].solved == 0


def test_micro_batches_change_nothing():
    found = []
    for tokens in (16384, 2):
        made = learner(update_of(optimization=replace(PLAIN, microbatch_tokens=tokens)))
        for move in range(3):
            made.step(made.prepare(batch_of(move, seed=move)))
        found.append(torch.cat([x.detach().flatten() for x in made.policy.parameters()]))
    torch.testing.assert_close(*found, atol=1e-6, rtol=1e-5)


def test_it_goes_on_where_it_was_saved():
    """With the actions that it remembers, which are no longer the best ones."""
    made = learner(update_of(renew=10))
    made.step(made.prepare(batch_of(1)))
    with torch.no_grad():
        for weight in made.models["target"].parameters():
            weight.neg_()
    policy = SPEC.load(1)
    policy.load_state_dict(made.policy.state_dict())
    other = Learner(policy, update_of(renew=10), seed=0)
    other.load_state(copy.deepcopy(made.save_state()))
    for one in (made, other):
        one.step(one.prepare(batch_of(2)))
    for name in made.models.modules:
        assert all(map(torch.equal, made.models[name].state_dict().values(), other.models[name].state_dict().values()))
    assert made.models.parts[BEST].solved == other.models.parts[BEST].solved
    assert np.all([torch.equal(a, other.models.parts[BEST].known[k]) for k, a in made.models.parts[BEST].known.items()])


def test_renewing_never_is_refused():
    with pytest.raises(ValueError, match=r"renew is 0; it is for how many moves"):
        update_of(renew=0)
