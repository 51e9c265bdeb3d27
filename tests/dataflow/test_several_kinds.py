"""Rows of tokens and rows of paths in one batch."""

import pytest
import torch

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from gimbal.dataflow.several_kinds import SeveralKinds, together
from gimbal.policies.paths import Paths
from gimbal.policies.token import Tokens


def path(label: int, steps: int) -> Paths:
    return Paths(
        state_NXD=torch.full((1, steps + 1, 1, 2, 2), float(label)),
        level_NSL=torch.zeros(1, steps, 4),
        time_NS=torch.zeros(1, steps),
        amplitude_NS=torch.ones(1, steps),
        mean_NSD=torch.zeros(1, steps, 1, 2, 2),
        std_NS=torch.ones(1, steps),
        label_N=torch.tensor([label]),
        length_N=torch.tensor([steps]),
        sampler="flow_sde",
        reduce="sum",
    )


WORDS = [Tokens.row([1, 2], [3]), Tokens.row([4], [5, 6, 7, 8, 9])]


def test_rows_of_one_kind_are_that_kinds_own_record():
    assert isinstance(together(WORDS), Tokens) and isinstance(together([path(1, 2)]), Paths)


def test_rows_keep_their_order_and_each_selection_is_as_wide_as_its_longest():
    batch = together([WORDS[0], path(7, 2), WORDS[1], path(8, 3)])
    assert isinstance(batch, SeveralKinds) and batch.shape == (4, 5)
    assert batch.cost_N.tolist() == [3, 8, 6, 12]  # tokens with their prompt; pixels of the states that are read
    paths = batch.select(torch.tensor([3, 1]))
    assert isinstance(paths, Paths) and paths.label_N.tolist() == [8, 7] and paths.shape == (2, 3)
    words = batch.select(torch.tensor([0]))
    assert isinstance(words, Tokens) and torch.equal(words.ids_NL, WORDS[0].ids_NL) and words.shape == (1, 1)


def test_a_selection_of_a_selection_is_the_rows_that_it_names():
    batch = together([WORDS[0], path(7, 2), WORDS[1], path(8, 3)])
    some = batch.select(torch.tensor([3, 2, 1]))
    assert isinstance(some, SeveralKinds) and some.shape == (3, 5) and some.cost_N.tolist() == [12, 6, 8]
    again = some.select(torch.tensor([2, 1]))
    assert again.shape == (2, 5) and again.select(torch.tensor([0])).label_N.tolist() == [7]
    assert torch.equal(again.select(torch.tensor([1])).ids_NL, WORDS[1].ids_NL)
