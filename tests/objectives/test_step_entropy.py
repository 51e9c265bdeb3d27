"""The steps of highest entropy are kept, each whole."""

import pytest
import torch

from gimbal.objectives.masks.step_entropy import StepEntropy
from gimbal.records import TrainBatch

ENTROPY_NS = torch.tensor([[0.1, 0.3, 0.9, 0.7, 0.0], [0.5, 0.5, 0.5, 9.0, 9.0]])
TURN_NS = torch.tensor([[0, 0, 1, 1, 2], [0, 0, 0, 1, 1]])
MASK_NS = torch.tensor(
    [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.bool
)  # means: .2, .8, 0, .5; under the mask nothing counts


def kept(keep, **changes):
    batch = TrainBatch(**{"mask_NS": MASK_NS, "entropy_NS": ENTROPY_NS, "turn_NS": TURN_NS} | changes)
    return StepEntropy(keep=keep)(batch).int().tolist()


def test_by_the_mean_over_a_step():
    assert kept(0.25) == [[0, 0, 1, 1, 0], [0, 0, 0, 0, 0]]
    assert kept(0.5) == [[0, 0, 1, 1, 0], [1, 1, 1, 0, 0]]
    assert kept(0.51) == kept(0.75) == [[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]]
    assert kept(1.0) == MASK_NS.int().tolist() and sum(map(sum, kept(0.0))) == 0


def test_what_ties_is_kept_and_without_turns_a_row_is_a_step():
    assert kept(0.1, entropy_NS=torch.ones(2, 5)) == MASK_NS.int().tolist()
    assert kept(0.5, turn_NS=None) == [[0] * 5, [1, 1, 1, 0, 0]]  # .4 against .5


def test_a_share_is_from_0_to_1():
    with pytest.raises(ValueError, match="share of the steps"):
        StepEntropy(keep=1.5)
