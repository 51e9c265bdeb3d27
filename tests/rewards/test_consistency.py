"""Sets of pictures that belong together: the mean over pairs by hand, its limiting cases, and what the judge of digits says."""

from dataclasses import dataclass, replace
from itertools import combinations

import made
import pytest
import torch

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install -e '.[denoising]'")

from test_samples import group_of

from gimbal.records import Episode, Group
from gimbal.rewards.consistency import AbstractConsistency, DigitConsistency
from gimbal.rewards.digits import digits


@dataclass(frozen=True, kw_only=True)
class Near(AbstractConsistency):
    """exp(-|x - x'|) of the first numbers."""

    name: str = "near"
    always: bool = False

    def same(self, x_PD, other_PD):
        return torch.ones(len(x_PD)) if self.always else (-(x_PD - other_PD)[:, 0].abs()).exp()


def streams_of(*sets):
    """A group with an episode for each set of samples, which are its rows."""
    rows = [group_of(torch.as_tensor(x_BD)).rollouts for x_BD in sets]
    episodes = [
        Episode(rows=tuple(replace(row, sample=k, row=b) for b, row in enumerate(own))) for k, own in enumerate(rows)
    ]
    return Group(index=0, task=made.TASK, episodes=tuple(episodes))


def test_the_score_is_the_mean_over_the_pairs_of_an_episode_and_of_no_other():
    first, second = [0.0, 1.0, 3.0], [5.0, 5.5, 9.0, 5.0]
    found = Near()(streams_of(*([[x, 0.0, 0.0, 0.0] for x in xs] for xs in (first, second))))
    expected = [
        sum(torch.tensor(-abs(a - b)).exp().item() for a, b in combinations(xs, 2)) / len(list(combinations(xs, 2)))
        for xs in (first, second)
    ]
    assert found == pytest.approx(expected)


def test_two_samples_are_the_one_pair_and_their_order_says_nothing():
    x_BD = torch.randn(4, 4)
    (pair,) = Near()(streams_of(x_BD[:2]))
    assert pair == pytest.approx(float((-(x_BD[0] - x_BD[1])[0].abs()).exp()))
    assert Near()(streams_of(x_BD)) == pytest.approx(Near()(streams_of(x_BD[[2, 0, 3, 1]])))


def test_a_judge_that_always_says_yes_gives_all_the_same():
    assert Near(always=True)(streams_of(torch.randn(3, 4), torch.randn(3, 4))) == [1.0, 1.0]


def test_digits_that_are_alike_belong_together_whichever_they_are():
    data_KD, label_K = (rows[1::2] for rows in digits())  # not what its classifier learned from
    alike = [data_KD[label_K == digit][:6] for digit in range(10)]
    mixed = [torch.stack([own[k] for own in alike[:6]]) for k in range(6)]
    same, other = DigitConsistency()(streams_of(*alike)), DigitConsistency()(streams_of(*mixed))
    assert min(same) > 2 * max(other) and sum(same) / len(same) > 0.7 and max(other) < 0.05
    x_PD, other_PD = data_KD[:50], data_KD[50:100]
    p_PC, q_PC = (torch.stack([judged(digit, one) for digit in range(10)], -1) for one in (x_PD, other_PD))
    torch.testing.assert_close(DigitConsistency().same(x_PD, other_PD), torch.einsum("pc,pc->p", p_PC, q_PC))


def test_a_classifier_that_knows_nothing_says_one_in_ten(monkeypatch):
    monkeypatch.setattr("gimbal.rewards.digits._linear", lambda: (torch.zeros(10, 64), torch.zeros(10)))
    assert DigitConsistency()(streams_of(torch.randn(3, 64))) == pytest.approx([0.1])


def judged(digit, x_PD):
    from gimbal.rewards.digits import _linear

    weight, bias = _linear()
    return torch.nn.functional.softmax(x_PD @ weight.T + bias, -1)[:, digit]


def test_an_episode_of_one_picture_and_a_judge_of_another_shape_are_refused_in_a_sentence():
    with pytest.raises(ValueError, match=r"that of task .* has one: workflow='Streamed"):
        Near()(group_of(torch.randn(3, 4)))

    @dataclass(frozen=True, kw_only=True)
    class Wrong(AbstractConsistency):
        name: str = "wrong"

        def same(self, x_PD, other_PD):
            return x_PD

    with pytest.raises(ValueError, match=r"Wrong.same returned .*one probability for each pair, here \[3\]"):
        Wrong()(streams_of(torch.randn(3, 4)))
