"""Records made by hand, for tests of what is reported about them."""

import made
import torch

from gimbal.policies.token import Tokens
from gimbal.records import Group, Task, TrainBatch


def rollout(score=1.0, length=3, sample=0, text="7", stop="stop", scores=None, entropy=None):
    return made.rollout(
        task=Task(id="t", prompt="3 + 4 =", answer="7"),
        sample=sample,
        decisions=Tokens.row([1, 2], list(range(length))),
        behavior_S=-torch.arange(1.0, length + 1),
        stop=stop,
        text=text,
        entropy_S=None if entropy is None else torch.full((length,), entropy),
        score=score,
        scores=scores or {},
    )


def group(*rollouts, index=0):
    return Group.of(index, rollouts[0].task, rollouts)


def batch(behavior, proximal, mask=None, version=None, advantage=None, group_N=None):
    behavior_NS, proximal_NS = torch.tensor(behavior), torch.tensor(proximal)
    mask_NS = torch.ones_like(behavior_NS, dtype=torch.bool) if mask is None else torch.tensor(mask)
    return TrainBatch(
        mask_NS=mask_NS,
        behavior_NS=behavior_NS,
        proximal_NS=proximal_NS,
        version_NS=torch.zeros(mask_NS.shape, dtype=torch.long) if version is None else torch.tensor(version),
        advantage_NS=torch.zeros_like(behavior_NS) if advantage is None else torch.tensor(advantage),
        group_N=torch.zeros(len(mask_NS), dtype=torch.long) if group_N is None else torch.tensor(group_N),
    )
