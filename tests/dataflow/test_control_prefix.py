"""Which decisions are control, and that a mean by part then weighs them apart."""

import made
import pytest
import torch

from gimbal.dataflow.filters.control_prefix import ControlPrefix
from gimbal.dataflow.packing import pack
from gimbal.ops import TokenMean
from gimbal.ops.part_mean import PartMean
from gimbal.policies.token import Tokens
from gimbal.records import Group, Part, Task

TASK = Task(id="t")


def rollout(mask, **options):
    mask_S = torch.tensor(mask)
    return made.rollout(task=TASK, decisions=Tokens.row([1], [2] * len(mask)), mask_S=mask_S, **options)


def marked(*rollouts, **options):
    group = ControlPrefix(**options)(Group.of(0, TASK, rollouts))
    assert isinstance(group, Group)
    return group


def parts(mask, **options):
    return marked(rollout(mask), **options).rollouts[0].part_S.tolist()


def test_the_first_decision_is_control():
    assert parts([True, True, True]) == [Part.CONTROL, Part.RESPONSE, Part.RESPONSE]
    assert parts([True, True, True], decisions=2) == [Part.CONTROL, Part.CONTROL, Part.RESPONSE]
    assert parts([True], decisions=5) == [Part.CONTROL]


def test_no_decisions_are_all_response():
    assert parts([True, True], decisions=0) == [Part.RESPONSE, Part.RESPONSE]


def test_what_the_policy_did_not_draw_is_not_counted():
    assert parts([False, True, True]) == [Part.RESPONSE, Part.CONTROL, Part.RESPONSE]
    assert parts([False, False]) == [Part.RESPONSE, Part.RESPONSE]


def test_parts_that_are_there_stay():
    own = torch.tensor([Part.LATENT, Part.RESPONSE])
    assert marked(rollout([True, True], part_S=own)).rollouts[0].part_S is own


def test_a_mean_by_part_then_weighs_control_apart():
    rows = (rollout([True] * 3), rollout([True] * 2))
    batch, bare = pack([marked(*rows)]), pack([Group.of(0, TASK, rows)])
    expected = torch.tensor([[0.0005, 1 / 3, 1 / 3], [0.0005, 1 / 3, 0.0]])
    torch.testing.assert_close(PartMean(control=0.001)(batch.mask_NS, batch.part_NS), expected)
    # Without the filter the weight of control decisions has nothing to act on.
    torch.testing.assert_close(PartMean(control=0.001)(bare.mask_NS, bare.part_NS), TokenMean()(bare.mask_NS))


def test_fewer_decisions_than_none_are_refused():
    with pytest.raises(ValueError, match="0 or above"):
        ControlPrefix(decisions=-1)
