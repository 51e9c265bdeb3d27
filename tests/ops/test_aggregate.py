"""The weights of each aggregation, by hand, and the limits its docstring states."""

import pytest
import torch

from gimbal.ops import ConstantMean, SequenceMean, SequenceSum, TokenMean

MASK = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0]], dtype=torch.bool)  # 4, 2 and 0 decisions
EVERY = [TokenMean(), SequenceMean(), SequenceSum(), ConstantMean(length=8.0)]


@pytest.mark.parametrize(
    ("aggregation", "long", "short"),
    [
        (TokenMean(), 1 / 6, 1 / 6),
        (SequenceMean(), 1 / 2 / 4, 1 / 2 / 2),
        (SequenceSum(), 1 / 2, 1 / 2),
        (ConstantMean(length=8.0), 1 / 2 / 8, 1 / 2 / 8),
    ],
)
def test_weights_by_hand(aggregation, long, short):
    weight_NS = aggregation(MASK)
    torch.testing.assert_close(weight_NS, torch.tensor([[long] * 4, [short, 0, short, 0], [0.0] * 4]))


@pytest.mark.parametrize("aggregation", EVERY)
def test_an_episode_cut_into_rows_weighs_what_it_weighs_whole(aggregation):
    whole_NS = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 0, 0], [0, 0, 0, 0, 0]], dtype=torch.bool)
    cut_NS = torch.tensor([[1, 1, 0], [1, 0, 1], [0, 0, 0], [1, 1, 1]], dtype=torch.bool)
    cut, whole = aggregation(cut_NS, episode_N=torch.tensor([7, 3, 3, 7])), aggregation(whole_NS)
    torch.testing.assert_close(cut[[0, 3]].sum(), whole[0].sum())
    torch.testing.assert_close(cut[1], whole[1, :3])
    torch.testing.assert_close(aggregation(cut_NS, episode_N=torch.tensor([2, 0, 5, 1])), aggregation(cut_NS))


@pytest.mark.parametrize("aggregation", EVERY)
def test_an_empty_batch_weighs_nothing(aggregation):
    for n, s in ((3, 4), (0, 4), (3, 0)):
        weight_NS = aggregation(torch.zeros(n, s, dtype=torch.bool))
        assert weight_NS.shape == (n, s) and (weight_NS == 0).all()


@pytest.mark.parametrize("aggregation", EVERY)
def test_padding_and_empty_rows_change_nothing(aggregation):
    wide = torch.nn.functional.pad(MASK, (0, 3, 0, 2))
    torch.testing.assert_close(aggregation(wide)[:3, :4], aggregation(MASK))


def test_equal_lengths_make_sequence_mean_the_token_mean():
    mask_NS = torch.ones(3, 5, dtype=torch.bool)
    torch.testing.assert_close(SequenceMean()(mask_NS), TokenMean()(mask_NS))
    torch.testing.assert_close(ConstantMean(length=5.0)(mask_NS), SequenceMean()(mask_NS))


def test_constant_mean_of_length_1_is_the_sequence_sum():
    torch.testing.assert_close(ConstantMean(length=1.0)(MASK), SequenceSum()(MASK))
    with pytest.raises(ValueError, match="length is 0"):
        ConstantMean(length=0.0)
