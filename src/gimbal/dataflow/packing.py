"""From groups of rollouts to the rows the learner sees."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gimbal.records import Group, Rollout, TrainBatch


def pack(groups: Sequence[Group]) -> TrainBatch:
    """One row a rollout, in the order of dispatch, padded to the longest. A rollout's score joins its last counted reward."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    assert rollouts, "a batch holds at least one rollout"
    for rollout in rollouts:
        rollout.validate()

    def padded(name: str) -> Shaped[Tensor, "N S"]:
        return pad_sequence([getattr(rollout, name) for rollout in rollouts], batch_first=True)

    return TrainBatch(
        mask_NS=padded("mask_S"),
        behavior_NS=padded("behavior_S"),
        version_NS=padded("version_S"),
        reward_NS=pad_sequence([_reward_S(rollout) for rollout in rollouts], batch_first=True),
        group_N=torch.tensor([group.index for group in groups for _ in group.rollouts]),
        decisions=type(rollouts[0].decisions).stack([rollout.decisions for rollout in rollouts]),
    )


def _reward_S(rollout: Rollout) -> Tensor:
    if rollout.score is None or not bool(rollout.mask_S.any()):
        return rollout.reward_S
    reward_S = rollout.reward_S.clone()
    # On the last decision that counts: what lies under the mask is never read.
    reward_S[int(rollout.mask_S.nonzero()[-1])] += rollout.score
    return reward_S


def micro_batches(batch: TrainBatch, tokens: int) -> list[TrainBatch]:
    """Rows sorted by length and cut so that padded size stays within ``tokens`` (a single longer row makes its own)."""
    assert batch.decisions is not None
    cost_N = batch.decisions.cost_N
    order = torch.argsort(cost_N, stable=True).tolist()
    cuts: list[list[int]] = [[]]
    for row in order:
        if cuts[-1] and (len(cuts[-1]) + 1) * int(cost_N[row]) > tokens:
            cuts.append([])
        cuts[-1].append(row)
    return [batch.select(torch.tensor(rows)) for rows in cuts]
