"""Groups of finished rollouts with given texts."""

import pytest
import torch

from gimbal.policies.token import Tokens
from gimbal.records import Group, Rollout, Sampling, Task


def _rollout(task: Task, sample: int, text: str) -> Rollout:
    zero_S = torch.zeros(2)
    return Rollout(
        task=task,
        sample=sample,
        decisions=Tokens.row([1], [2, 3 + sample]),
        behavior_S=zero_S,
        version_S=zero_S.long(),
        mask_S=zero_S == 0,
        reward_S=zero_S,
        stop="stop",
        sampling=Sampling(),
        text=text,
    )


@pytest.fixture
def group_of():
    def make(*texts: str, **task) -> Group:
        made = Task(**{"id": "t1", "prompt": "2+2=", "answer": "4", **task})
        return Group(index=0, task=made, rollouts=tuple(_rollout(made, i, text) for i, text in enumerate(texts)))

    return make


@pytest.fixture
def opened():
    """Opens rewards and closes them after the test."""
    live = []

    def open_(reward):
        live.append(reward)
        return reward.open()

    yield open_
    for reward in live:
        reward.close()
