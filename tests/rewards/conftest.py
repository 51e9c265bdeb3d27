"""Groups of finished rollouts with given texts."""

import shapes  # noqa: F401, I001  # first: named on the command line, this file is read before the one above it is configured
import made
import pytest

from gimbal.policies.token import Tokens
from gimbal.records import Group, Rollout, Task


def _rollout(task: Task, sample: int, text: str) -> Rollout:
    return made.rollout(task=task, sample=sample, decisions=Tokens.row([1], [2, 3 + sample]), text=text)


@pytest.fixture
def group_of():
    def make(*texts: str, **task) -> Group:
        asked = Task(**{"id": "t1", "prompt": "2+2=", "answer": "4", **task})
        return made.group(asked, *(_rollout(asked, i, text) for i, text in enumerate(texts)))

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
