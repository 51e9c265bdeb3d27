"""What tests/shapes.py adds to every test: a shape or a kind that is not as it is annotated ends the call."""

import dataclasses

import made
import pytest
import torch
from jaxtyping import TypeCheckError

from gimbal.ops.masked import masked_sum


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x_NS, b: masked_sum(torch.zeros(2, 3), torch.zeros(2, 4) > 0),
        lambda x_NS, b: masked_sum(torch.zeros(2, 3), torch.zeros(2, 3)),
        lambda x_NS, b: dataclasses.replace(b, advantage_NS=x_NS[:, :5]),
        lambda x_NS, b: dataclasses.replace(b, mask_NS=x_NS),
    ],
)
def test_shapes_that_disagree_are_found(wrong):
    x_NS, b = made.batch()
    with pytest.raises(TypeCheckError):
        wrong(x_NS, b)
