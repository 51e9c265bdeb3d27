"""Records made by hand, for tests that need some and not what is in them."""

from typing import Any

import torch

from gimbal.policies.token import Sampling, Tokens
from gimbal.records import Group, Rollout, Task, TrainBatch

TASK = Task(id="t")


def rollout(task: Task = TASK, **fields: Any) -> Rollout:
    """One decision that counts, sampled with certainty by version 0, or as many as ``decisions`` has; any field may be given."""
    decisions = fields.pop("decisions", Tokens.row([1], [2]))
    zero_S = torch.zeros(decisions.shape[1])
    usual = {"behavior_S": zero_S, "version_S": zero_S.long(), "mask_S": zero_S == 0, "reward_S": zero_S}
    usual |= {"sample": 0, "stop": "stop", "sampling": Sampling()}
    return Rollout(task=task, decisions=decisions, **(usual | fields))


def group(task: Task, *rollouts: Rollout, index: int = 0) -> Group:
    return Group.of(index, task, rollouts)


def batch(seed: int = 0, apart: float = 0.5) -> tuple[torch.Tensor, TrainBatch]:
    """(logprob_NS, a batch around it): four ragged rows of up to six decisions in three turns, all columns in float64."""
    g = torch.Generator().manual_seed(seed)

    def draw() -> torch.Tensor:
        return torch.randn(4, 6, generator=g, dtype=torch.float64)

    logprob_NS = -draw().abs()
    return logprob_NS, TrainBatch(
        mask_NS=torch.arange(6) < torch.tensor([[6], [4], [1], [5]]),
        proximal_NS=logprob_NS + apart * draw(),
        behavior_NS=logprob_NS + 0.5 * draw(),
        reference_NS=logprob_NS + 0.5 * draw(),
        advantage_NS=draw(),
        turn_NS=torch.tensor([0, 0, 1, 1, 1, 2]).expand(4, 6).clone(),
    )
