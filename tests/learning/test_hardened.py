"""Contests against linear programs, closed forms and sums by hand; two timescales against finite differences and known equilibria."""

import itertools
import math

import numpy as np
import pytest

from gimbal.environments.contest import CHANGE, DRIVE, Contest, lanes, pennies
from gimbal.learning.hardened import TwoTimescales, projected

PARTNER = np.array([[0.2, 0.8], [0.2, 0.8]])


def drawn(contest, seed, of=1):
    """A policy by chance, of the first player or the other."""
    states, actions = contest.reward_SAB.shape[0], contest.reward_SAB.shape[of]
    return np.random.default_rng(seed).dirichlet(np.ones(actions), (contest.horizon, states))


def some(seed, states=3, horizon=4):
    """A contest of three states, two actions and three."""
    generator = np.random.default_rng(seed)
    transition = 0.9 * generator.dirichlet(np.ones(states), (states, 2, 3))
    return Contest(transition_SABS=transition, reward_SAB=generator.standard_normal((states, 2, 3)), horizon=horizon)


def value(contest):
    """Of the equilibrium, by a linear program for each state and step."""
    linprog = pytest.importorskip("scipy.optimize").linprog
    value_S = np.zeros(len(contest.reward_SAB))
    for _ in range(contest.horizon):
        solved = []
        for q_AB in contest.reward_SAB + contest.transition_SABS @ value_S:
            a, b = q_AB.shape
            rows = np.concatenate([-q_AB.T, np.ones((b, 1))], 1)  # v - pi.q(., b) <= 0 for each b
            bounds = [(0, 1)] * a + [(None, None)]
            found = linprog([*np.zeros(a), -1], rows, np.zeros(b), [[*np.ones(a), 0]], [1], bounds)
            solved.append(-found.fun)
        value_S = np.array(solved)
    return value_S[0]


def test_both_players_see_one_return():
    contest = some(0)
    policy, attack = drawn(contest, 1), drawn(contest, 2, of=2)
    own, theirs = contest.values(policy, attack)
    assert (policy[0, 0] * own[0, 0]).sum() == pytest.approx((attack[0, 0] * theirs[0, 0]).sum())
    # By the states that are met: each step pays what its state pays on average.
    paid = np.einsum("hs,hsa,hsb,sab->", contest.visits(policy, attack), policy, attack, contest.reward_SAB)
    assert (policy[0, 0] * own[0, 0]).sum() == pytest.approx(paid)


def test_the_worst_reply_is_the_worst_of_all():
    """Of all 3^6 replies of a contest of two steps."""
    contest = some(3, horizon=2)
    policy = drawn(contest, 1)
    found, reply = contest.worst(policy)
    every = [
        (policy[0, 0] * contest.values(policy, np.eye(3)[np.array(way).reshape(2, 3)])[0][0, 0]).sum()
        for way in itertools.product(range(3), repeat=6)
    ]
    assert found == pytest.approx(min(every))
    assert (policy[0, 0] * contest.values(policy, reply)[0][0, 0]).sum() == pytest.approx(found)


def test_the_lanes_are_worth_what_a_game_of_two_by_two_is():
    """[[0, a], [b, 0]] is worth a b / (a + b)."""
    value_S = np.zeros(2)
    for _ in range(DRIVE):
        free = [(1 + value_S[0] - CHANGE * (s != 0), 2 + value_S[1] - CHANGE * (s != 1)) for s in range(2)]
        value_S = np.array([a * b / (a + b) for a, b in free])
    assert value(lanes()) == pytest.approx(value_S[0])
    assert value(pennies()) == pytest.approx(0)


def test_a_share_of_nothing_is_the_honest_partner_and_of_everything_the_contest():
    contest = lanes()
    whole, none = contest.hijacked(PARTNER, 1.0), contest.hijacked(PARTNER, 0.0)
    assert np.array_equal(whole.reward_SAB, contest.reward_SAB)
    assert np.array_equal(whole.transition_SABS, contest.transition_SABS)
    policy, partner = drawn(contest, 0), np.tile(PARTNER, (DRIVE, 1, 1))
    honest = (policy[0, 0] * contest.values(policy, partner)[0][0, 0]).sum()
    assert none.worst(policy)[0] == pytest.approx(honest)
    half = contest.hijacked(PARTNER, 0.5)
    mixed = 0.5 * partner + 0.5 * drawn(contest, 5, of=2)
    assert half.values(policy, drawn(contest, 5, of=2))[0] == pytest.approx(contest.values(policy, mixed)[0])


def test_a_larger_share_does_more_harm_and_shows_more():
    """The return falls with the share, and the states that are met differ by at most 1 - (1 - share)^h."""
    contest, policy = some(1), drawn(some(1), 4)
    partner = drawn(contest, 6, of=2)[0]
    honest = contest.visits(policy, np.tile(partner, (contest.horizon, 1, 1)))
    last, shown = math.inf, -1.0
    for share in (0.0, 0.1, 0.25, 0.5, 1.0):
        attacked = contest.hijacked(partner, share)
        harm, reply = attacked.worst(policy)
        far_H = np.abs(attacked.visits(policy, reply) - honest).sum(1) / 2
        assert (far_H <= 1 - (1 - share) ** np.arange(contest.horizon) + 1e-12).all()
        assert harm < last and far_H.max() > shown
        last, shown = harm, far_H.max()
    with pytest.raises(ValueError, match=r"share is 1\.5"):
        contest.hijacked(partner, 1.5)


def test_a_projection_is_the_nearest_distribution():
    points = np.random.default_rng(0).standard_normal((50, 4))
    found = projected(points)
    assert found.sum(-1) == pytest.approx(np.ones(50)) and (found >= 0).all()
    for other in np.random.default_rng(1).dirichlet(np.ones(4), 40):
        assert (((points - found) ** 2).sum(-1) <= ((points - other) ** 2).sum(-1) + 1e-12).all()
    inside = np.random.default_rng(2).dirichlet(np.ones(4), 5)
    assert projected(inside) == pytest.approx(inside)


def test_against_a_worst_reply_a_step_is_up_the_gradient_of_the_worst_return():
    """By central differences in directions that keep sums of 1; at a policy where the reply is the only worst one."""
    contest, rate = some(2).hijacked(np.full((3, 3), 1 / 3), 0.5), 1e-7
    begin = 0.1 + 0.8 * drawn(contest, 7)
    steps = TwoTimescales(rate=rate, replies=0).policies(contest, begin / begin.sum(-1, keepdims=True))
    (policy, reply), (after, _) = next(steps), next(steps)
    assert np.array_equal(reply, contest.worst(policy)[1])
    moved = (after - policy) / rate
    for h, s in itertools.product(range(contest.horizon), range(3)):
        far = np.zeros_like(policy)
        far[h, s] = [1e-6, -1e-6]
        slope = (contest.worst(policy + far)[0] - contest.worst(policy - far)[0]) / 2e-6
        assert moved[h, s, 0] - moved[h, s, 1] == pytest.approx(slope, abs=1e-4)


def last(contest, begin, updates=2_000, **fields):
    """How far below its value a policy is in the worst case, over the last fifth of its moves."""
    policies = itertools.islice(TwoTimescales(**fields).policies(contest, begin), updates)
    return np.array([contest.worst(policy)[0] for policy, _ in policies][-updates // 5 :])


def test_pennies_by_turns_go_round_and_stay_nearer_with_more_replies():
    """From always heads the ellipse has half axes of 1/2 for the attacker and 1 / (2 sqrt(replies)) for the policy, who loses twice
    its distance."""
    begin = np.array([[[0.95, 0.05]]])
    for replies, far in ((1, 0.9), (16, 0.25), (100, 0.1)):
        found = -last(pennies(), begin, rate=0.003, replies=replies)
        assert found.max() == pytest.approx(far, rel=0.2), replies


def test_the_mean_of_policies_by_turns_is_the_equilibrium_of_pennies():
    begin = np.array([[[0.9, 0.1]]])
    found = [
        policy for policy, _ in itertools.islice(TwoTimescales(rate=0.01, replies=1).policies(pennies(), begin), 6_283)
    ]
    assert np.mean(found, 0)[0, 0] == pytest.approx([0.5, 0.5], abs=0.02)
    assert max(abs(policy[0, 0, 0] - 0.5) for policy in found[-700:]) > 0.3


def test_in_the_lanes_a_quick_attacker_brings_the_policy_near_its_value_and_an_equal_one_does_not():
    attacked = lanes().hijacked(PARTNER, 0.5)
    best, begin = value(attacked), drawn(lanes(), 0)
    short = {n: best - last(attacked, begin, rate=0.01, replies=n, updates=1_000).mean() for n in (0, 1, 10)}
    assert 0 < short[0] < 0.04 < short[10] < 0.8 * short[1]


def test_without_a_share_it_is_best_beside_the_honest_partner_and_can_be_exploited():
    honest, begin = lanes().hijacked(PARTNER, 0.0), drawn(lanes(), 0)
    policies = itertools.islice(TwoTimescales(rate=0.1, replies=1).policies(honest, begin), 500)
    policy = list(policies)[-1][0]
    assert honest.worst(policy)[0] == pytest.approx(value(honest), abs=1e-3)
    assert lanes().worst(policy)[0] < value(lanes()) - 1


@pytest.mark.parametrize("fields", [{"rate": 0.0}, {"rate": math.inf}, {"replies": -1}])
def test_settings_that_cannot_be_are_refused(fields):
    with pytest.raises(ValueError, match="TwoTimescales has rate"):
        TwoTimescales(**fields)
