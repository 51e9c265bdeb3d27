"""WinRate: ranks, pairs, what abstains, and the minimax winner of a game without a best move."""

from dataclasses import dataclass

import pytest
import torch

from gimbal.advantages.reward_shaping.spread_return import SpreadReturn
from gimbal.records import TrainBatch
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.exact import ExactAnswer
from gimbal.rewards.win_rate import AbstractPreference, ByRewards, WinRate


@dataclass(frozen=True, kw_only=True)
class Digit(AbstractReward):
    """The number that stands at a place of the text; "-" is no verdict."""

    place: int = 0
    name: str = "digit"

    def __call__(self, group):
        letters = [rollout.text[self.place] for rollout in group.rollouts]
        return [None if letter == "-" else float("nan") if letter == "?" else float(letter) for letter in letters]


@dataclass(frozen=True, kw_only=True)
class Circle(AbstractPreference):
    """Rock, paper, scissors: each beats the one before it."""

    def __call__(self, group):
        moves = [int(rollout.text) for rollout in group.rollouts]
        return [[(0.5, 1.0, 0.0)[(a - b) % 3] for b in moves] for a in moves]


def rates(group, *, places=1, **settings):
    return WinRate(preference=ByRewards(rewards=tuple(Digit(place=p) for p in range(places)), **settings))(group)


def test_one_noiseless_score_gives_the_rank(group_of):
    assert rates(group_of("3", "1", "7", "5", "0")) == [0.5, 0.25, 1.0, 0.75, 0.0]
    assert rates(group_of("3", "1", "7", "5", "0"), majority=False) == [0.5, 0.25, 1.0, 0.75, 0.0]


def test_groups_of_two_and_ties(group_of):
    assert rates(group_of("3", "1")) == [1.0, 0.0] and rates(group_of("3", "3")) == [0.5, 0.5]
    assert rates(group_of("2", "2", "1", "1")) == pytest.approx([5 / 6, 5 / 6, 1 / 6, 1 / 6])


def test_a_temperature_is_bradley_and_terry(group_of):
    first, second = rates(group_of("3", "1"), temperature=2.0, majority=False)
    assert first == pytest.approx(torch.tensor(1.0).sigmoid().item()) and first + second == pytest.approx(1.0)


def test_a_majority_of_three_may_go_round_in_a_circle(group_of):
    group = group_of("123", "231", "312")
    assert rates(group, places=3) == [0.5, 0.5, 0.5]
    wins = ByRewards(rewards=tuple(Digit(place=p) for p in range(3)))(group)
    assert wins[1][0] == wins[2][1] == wins[0][2] == 1.0
    shares = ByRewards(rewards=tuple(Digit(place=p) for p in range(3)), majority=False)(group)
    assert shares[1][0] == pytest.approx(2 / 3)


@pytest.mark.parametrize("majority", [False, True])
def test_the_mean_of_a_group_is_a_half(group_of, majority):
    assert sum(rates(group_of("14", "22", "01", "94"), places=2, majority=majority)) == pytest.approx(2.0)


@pytest.mark.parametrize("none", ["-", "?"])
def test_who_has_no_verdict_is_compared_with_none(group_of, none):
    assert rates(group_of("3", none, "1")) == [1.0, None, 0.0]
    assert rates(group_of("3")) == [None] and rates(group_of(none, none)) == [None, None]
    assert rates(group_of("31", none + "2"), places=2) == [0.0, 1.0]  # the second reward alone decides


def test_self_play_finds_the_minimax_winner(group_of):
    """The mean of the iterates is uniform; a score of the moves, whatever it is, makes the policy pure."""
    generator = torch.Generator().manual_seed(0)
    logits_A, mean_A = torch.tensor([1.0, 0.0, -0.5], dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    moves = group_of("0", "1", "2")
    wins_AA = torch.tensor(Circle()(moves), dtype=torch.float64)
    steps, size = 2000, 32
    for _ in range(steps):
        policy_A = logits_A.softmax(0)
        mean_A += policy_A / steps
        count_A = torch.bincount(
            torch.multinomial(policy_A, size, replacement=True, generator=generator), minlength=3
        ).double()
        # The win rate of a move among the others of such a group.
        rate_A = (wins_AA @ count_A - 0.5) / (size - 1)
        logits_A += 0.05 * (rate_A - 0.5)
    assert (mean_A - 1 / 3).abs().max() < 0.05
    drawn = group_of("0", "1", "1", "2")
    count_A = torch.tensor([1.0, 2.0, 1.0]).double()
    expected_A = (wins_AA @ count_A - 0.5) / 3
    assert WinRate(preference=Circle())(drawn) == pytest.approx(expected_A[[0, 1, 1, 2]].tolist())


def test_the_default_compares_what_reasoning_gym_says(group_of):
    assert WinRate(preference=ByRewards(rewards=(ExactAnswer(),)))(group_of("<answer>4</answer>", "5")) == [1.0, 0.0]


def test_spread_returns_keep_the_return():
    mask_NS = torch.tensor([[True, False, True, True], [True, False, False, False], [False] * 4])
    reward_NS = torch.tensor([[0.0, 9.0, 0.0, 0.6], [0.5, 9.0, 9.0, 9.0], [9.0] * 4])
    b = TrainBatch(mask_NS=mask_NS, reward_NS=reward_NS)
    spread_NS = SpreadReturn()(b)
    expected_NS = torch.tensor([[0.2, 0.0, 0.2, 0.2], [0.5, 0.0, 0.0, 0.0], [0.0] * 4])
    torch.testing.assert_close(spread_NS, expected_NS)
    torch.testing.assert_close(spread_NS.sum(-1), torch.tensor([0.6, 0.5, 0.0]))


@pytest.mark.parametrize("wrong", [{"rewards": ()}, {"temperature": -1.0}, {"rewards": (Digit(weight=0.0),)}])
def test_refusals(wrong):
    with pytest.raises(ValueError, match="ByRewards"):
        ByRewards(**wrong)
