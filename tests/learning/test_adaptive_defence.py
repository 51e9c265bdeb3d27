"""Defended that answer attacks on a put whose prices are misread, exactly; the bandit's limits and its regret."""

import itertools
import math

import numpy as np
import pytest

from gimbal.environments.tabular import RUNGS, put
from gimbal.learning.adaptive_defence import AdversarialBandit, Defenders

PUT = put()
# In state 0 the market is at the price, in 1 a rung above, in 2 one below, and so on.
RUNG = np.array([0, *(sign * far for far in range(1, RUNGS + 1) for sign in (1, -1))])
PLACE = {int(rung): state for state, rung in enumerate(RUNG)}
SHIFTS = (0, 1, -1, 2, -2)  # by how many rungs the market is said to be higher
ATTACKS = range(len(SHIFTS))
CUTS = range(-RUNGS - 1, RUNGS + 1)  # a policy sells where the market is said to be at most there


def misread(shift):
    """The state that is shown for each state."""
    return np.array([PLACE[max(-RUNGS, min(RUNGS, int(rung) + shift))] for rung in RUNG])


def earned(cut, attack):
    shown_S = misread(SHIFTS[attack])
    policy_SA = np.eye(2)[(cut >= RUNG).astype(int)]
    return float(PUT.values(policy_SA[shown_S])[0])


def answer(attack):
    return max(CUTS, key=lambda cut: earned(cut, attack))


def possible(attack):
    return max(earned(cut, attack) for cut in CUTS)


def defended(attacks=ATTACKS, **fields):
    return Defenders(**fields)(attacks, possible, answer, earned)


def test_an_answer_to_a_shift_is_the_policy_shifted():
    assert [answer(attack) - answer(0) for attack in ATTACKS] == list(SHIFTS)
    assert len({round(possible(attack), 12) for attack in ATTACKS}) == 1, "who knows the shift loses nothing by it"


def test_the_members_close_the_gap_that_each_alone_leaves_and_no_smaller_set_does():
    """In each attack their best is the best there is. The one policy that is best in the worst case earns about half of it there."""
    found = defended()
    assert found.converged and len(found.attacks) == 5 and found.gaps[-1] == 0
    assert found.return_KM.max(0) == pytest.approx([possible(attack) for attack in ATTACKS])
    assert all(one > other or one == pytest.approx(other) for one, other in itertools.pairwise(found.gaps))
    assert max(min(earned(cut, attack) for attack in ATTACKS) for cut in CUTS) == pytest.approx(0.109, abs=1e-3)
    table_CM = np.array([[earned(cut, attack) for attack in ATTACKS] for cut in CUTS])
    for four in itertools.combinations(range(len(table_CM)), 4):
        assert (table_CM[list(four)].max(0) < table_CM.max(0) - 1e-6).any()


def test_a_tolerated_gap_needs_fewer_members():
    """A rung's shift of threshold costs little: .206 becomes .203."""
    found = defended(tolerance=0.004)
    assert found.converged and len(found.attacks) < 5
    assert (found.return_KM.max(0) >= possible(0) - 0.004).all()


def test_one_attack_one_member_and_a_set_that_is_full_ask_no_further():
    assert defended([3]).attacks == (3,) and defended([3]).converged
    found = defended(most=1)
    assert found.attacks == (0,) and found.solutions == (answer(0),) and not found.converged
    assert found.gaps[0] == pytest.approx(possible(4) - earned(answer(0), 3))
    assert defended(tolerance=1.0).attacks == (0,)


def test_the_next_attack_is_where_most_is_to_be_had_and_not_where_least_is_earned():
    """Attack 1 leaves nobody anything, so there is nothing to answer; attack 2 leaves much that the first policy does not get."""
    table_KM = np.array([[1.0, 0.0, 0.4], [0.0, 0.1, 0.0], [0.2, 0.0, 0.9]])
    found = Defenders(tolerance=0.2)(
        range(3),
        lambda nu: table_KM[:, nu].max(),
        lambda nu: int(table_KM[:, nu].argmax()),
        lambda k, nu: table_KM[k, nu],
    )
    assert found.attacks == (0, 2) and found.gaps == (pytest.approx(0.5), pytest.approx(0.1))


def test_one_arm_is_that_arm_and_a_scale_of_nothing_is_chance():
    arm_T, earned_T = AdversarialBandit(arms=1, rounds=5).play(lambda k, t: 0.3, np.random.default_rng(0))
    assert arm_T.tolist() == [0] * 5 and earned_T.sum() == pytest.approx(1.5)
    chance = AdversarialBandit(arms=4, rounds=10, scale=0.0)
    assert chance.shares(chance.update(chance.init(), 2, 1.0)) == pytest.approx([0.25] * 4)


def test_a_round_by_hand():
    """Two arms, 50 rounds: eta = 2 sqrt(log 2 / 100). What is lost counts from high to low, by how often the arm is picked."""
    bandit = AdversarialBandit(arms=2, rounds=50, low=-200.0, high=0.0)
    eta = 2 * math.sqrt(math.log(2) / 100)
    first = bandit.update(bandit.init(), 1, -50.0)
    assert first == pytest.approx([0.0, -eta * 0.25 / (0.5 + eta / 2)])
    share = 1 / (1 + math.exp(-first[1]))
    assert bandit.shares(first) == pytest.approx([1 - share, share])
    assert bandit.update(first, 0, -100.0)[0] == pytest.approx(-eta * 0.5 / (1 - share + eta / 2))


def regret(rounds, table_TK, seed):
    bandit = AdversarialBandit(arms=table_TK.shape[1], rounds=rounds)
    arm_T, earned_T = bandit.play(lambda k, t: table_TK[t, k], np.random.default_rng(seed))
    return table_TK.sum(0).max() - earned_T.sum(), arm_T


def test_where_nothing_changes_the_share_of_the_best_arm_goes_to_one():
    table_TK = np.tile([0.2, 0.8, 0.5], (4_000, 1))
    lost, arm_T = regret(4_000, table_TK, 0)
    assert (arm_T[-400:] == 1).mean() > 0.95 and lost < 2 * math.sqrt(4_000 * 3 * math.log(3))


@pytest.mark.parametrize("change", ["never", "halfway", "late", "always"])
def test_its_regret_is_within_the_bound_against_attackers_that_change(change):
    """Means over 20 seeds; an attacker who changes sides halfway leaves every arm what it earned in one half. Where the best arm of all
    is best only after a third of the rounds, gains in place of losses would never find it."""
    rounds, arms = 1_000, 4
    generator = np.random.default_rng(1)
    means_TK = np.tile(np.array([0.9, 0.1, 0.2, 0.3]), (rounds, 1))
    if change == "halfway":
        means_TK[rounds // 2 :] = [0.1, 0.2, 0.9, 0.3]
    if change == "late":
        means_TK = np.zeros((rounds, arms))
        means_TK[: rounds // 3, 0] = means_TK[rounds // 3 :, 1] = 1.0
    if change == "always":
        means_TK = generator.uniform(size=(rounds, arms))
    lost = [regret(rounds, means_TK, seed)[0] for seed in range(20)]
    assert np.mean(lost) < 2 * math.sqrt(rounds * arms * math.log(arms))
    if change == "never":
        chance = rounds * (0.9 - means_TK[0].mean())
        assert np.mean(lost) < chance / 3


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (lambda: Defenders(most=0), "most 0"),
        (lambda: Defenders(tolerance=-1.0), "tolerance -1"),
        (lambda: AdversarialBandit(arms=0, rounds=3), "arms 0"),
        (lambda: AdversarialBandit(arms=2, rounds=3, scale=math.inf), "scale inf"),
        (lambda: AdversarialBandit(arms=2, rounds=3, low=1.0), "low 1.0 and high 1.0"),
        (lambda: AdversarialBandit(arms=2, rounds=3).update(np.zeros(2), 0, 1.5), "earned 1.5"),
    ],
)
def test_settings_that_cannot_be_are_refused(part, words):
    with pytest.raises(ValueError, match=words):
        part()
