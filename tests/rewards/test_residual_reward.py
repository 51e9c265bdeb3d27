"""A residual reward, of following a verdict against going on without it, is a sum of weighted rewards (OARPO, arXiv:2601.05465)."""

from dataclasses import dataclass

import torch

from gimbal import ops
from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.dataflow.packing import pack
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.scoring import score


@dataclass(frozen=True, kw_only=True)
class Given(AbstractReward):
    """These values."""

    values: tuple[float, ...]
    name: str = "given"

    def __call__(self, group):
        return list(self.values)


FOLLOWED = Given(values=(1.0, 0.0, 1.0, 0.0), name="followed")


def advantage(group, *rewards):
    return GroupNormalized()(pack([score(group, rewards)]))[:, 0]


def test_the_sum_is_that_of_the_equation(group_of):
    """norm_group((with - without) + 0.5 agreement - 0.1 extra calls)."""
    without = Given(values=(1.0, 0.0, 0.0, 1.0), name="accepted", weight=-1.0)
    agrees = Given(values=(1.0, 1.0, 1.0, 0.0), name="agrees", weight=0.5)
    calls = Given(values=(0.0, 1.0, 2.0, 1.0), name="calls", weight=-0.1)
    total = torch.tensor([0.5, 0.4, 1.3, -1.1])
    expected = ops.group_normalised(total, torch.zeros(4, dtype=torch.long))
    torch.testing.assert_close(advantage(group_of("", "", "", ""), FOLLOWED, without, agrees, calls), expected)


def test_without_constant_reduces_to_group_normalized_on_the_outcome(group_of):
    same = Given(values=(1.0,) * 4, name="accepted", weight=-1.0)
    group = group_of("", "", "", "")
    torch.testing.assert_close(advantage(group, FOLLOWED, same), advantage(group, FOLLOWED))
