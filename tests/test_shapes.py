"""What tests/shapes.py adds to every test: a shape, a kind or a return that is not as it is annotated ends the call."""

import dataclasses

import made
import pytest
import shapes
import torch
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from gimbal.ops.masked import masked_sum


def columns(x_NS: Float[Tensor, "N S"], *, first: int = 0) -> Float[Tensor, " S"]:  # noqa: F722
    return x_NS[first]


def rows(x_NS: Float[Tensor, "N S"]) -> Float[Tensor, " S"]:  # noqa: F722
    return x_NS[:, 0]


def test_shapes_that_disagree_are_found():
    x_NS, b = made.batch()
    assert (
        shapes.once(columns)(torch.zeros(2, 3)).shape == (3,) == shapes.once(columns)(torch.zeros(2, 3), first=1).shape
    )
    for wrong in (
        lambda: masked_sum(torch.zeros(2, 3), torch.zeros(2, 4) > 0),
        lambda: masked_sum(torch.zeros(2, 3), torch.zeros(2, 3)),
        lambda: dataclasses.replace(b, advantage_NS=x_NS[:, :5]),
        lambda: dataclasses.replace(b, mask_NS=x_NS),
        lambda: shapes.once(rows)(torch.zeros(2, 3)),
        lambda: shapes.once(columns)(torch.zeros(2, 3), first="1"),
    ):
        with pytest.raises(TypeCheckError):
            wrong()
