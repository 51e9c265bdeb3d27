"""The coupled bandit against its own play, and what is computed of it."""

import numpy as np
import pytest

from gimbal.environments import coupled_bandit as bandit

pytest.importorskip("gymnasium")


def full(chance_SAJ):
    """P(s'|s, a) of every state at once."""
    state_SJ = bandit.states()
    each = np.where(state_SJ[None, None] == 1, chance_SAJ[:, :, None], 1 - chance_SAJ[:, :, None])
    return each.prod(-1)


def test_what_is_ahead_is_the_sum_over_all_states_that_may_come():
    chance_SAJ = bandit.chances(bandit.states(), bandit.sets()[:5])
    transition = full(chance_SAJ)
    np.testing.assert_allclose(transition.sum(-1), 1)
    value_S = np.random.default_rng(0).normal(size=2**bandit.ARMS)
    np.testing.assert_allclose(bandit.ahead(value_S, chance_SAJ), transition @ value_S)


def test_arms_are_good_as_often_as_chances_say():
    world = bandit.CoupledBandit()
    world.reset(seed=0)
    state, action = np.array([1, 0, 1, 1, 0, 0]), np.zeros(bandit.WORKERS)
    action[[1, 4]] = 1
    count, earned = np.zeros(bandit.ARMS), 0.0
    for _ in range(4000):
        world.state = state
        seen, reward, ended, *_ = world.step(action)
        count += seen
        earned += reward
        assert not ended
    chance_J = bandit.chances(state[None], action[None].astype(int))[0, 0]
    assert np.abs(count / 4000 - chance_J).max() < 0.03
    assert earned / 4000 == pytest.approx(float(chance_J @ bandit.worth()), abs=0.05)


def test_exact_returns_are_those_of_play_and_looking_ahead_pays():
    best, near = bandit.returns(), bandit.returns(bandit.myopic())
    evenly = bandit.returns(np.full((2**bandit.ARMS, len(bandit.sets())), 1 / len(bandit.sets())))
    assert best == pytest.approx(71.0, abs=0.1) and near == pytest.approx(62.3, abs=0.1)
    assert evenly == pytest.approx(50.1, abs=0.1)
    world, sent_SI = bandit.listed(), bandit.myopic().argmax(1)
    places = {tuple(state): place for place, state in enumerate(bandit.states().tolist())}
    earned = []
    for seed in range(200):
        seen, _ = world.reset(seed=seed)
        total, cut = 0.0, False
        while not cut:
            seen, reward, _, cut, _ = world.step(sent_SI[places[tuple(seen.astype(int).tolist())]])
            total += reward
        earned.append(total)
    assert np.mean(earned) == pytest.approx(near, abs=4 * np.std(earned) / np.sqrt(200))


def test_no_more_are_sent_than_the_budget_lets():
    action = np.array([0.6, 0.0, 0.9, 0.4, 0.7, 0.0, 0.0, 0.0])
    assert np.flatnonzero(bandit.admitted(action)).tolist() == [2, 4]
    assert not bandit.admitted(np.full(8, 0.5)).any()
    assert len(bandit.sets()) == 1 + 8 + 28 and bandit.sets().sum(1).max() == bandit.BUDGET
