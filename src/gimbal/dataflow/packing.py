"""From groups of rollouts to the rows the learner sees."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gimbal.records import Group, Rollout, TrainBatch


def pack(groups: Sequence[Group]) -> TrainBatch:
    """One row a rollout, in the order of dispatch, padded to the longest. A rollout's score joins its last counted reward."""
    rollouts = [row for group in groups for row in group.rows]
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
        group_N=torch.tensor([group.index for group in groups for _ in group.rows]),
        sample_N=torch.tensor([rollout.sample for rollout in rollouts]),
        part_NS=_optional(rollouts, "part_S"),
        turn_NS=_optional(rollouts, "turn_S"),
        facts=_facts(rollouts),
        decisions=type(rollouts[0].decisions).stack([rollout.decisions for rollout in rollouts]),
    )


def _optional(rollouts: Sequence[Rollout], name: str) -> Shaped[Tensor, "N S"] | None:
    """The column if any rollout has it, 0 for those that have not."""
    columns = [getattr(rollout, name) for rollout in rollouts]
    if all(column is None for column in columns):
        return None
    zero = (torch.zeros(rollout.length, dtype=torch.long) for rollout in rollouts)
    return pad_sequence([z if c is None else c for c, z in zip(columns, zero, strict=True)], batch_first=True)


def _facts(rollouts: Sequence[Rollout]) -> dict[str, Tensor]:
    names = sorted({name for rollout in rollouts for name in rollout.scores})
    facts = {f"score/{name}": torch.tensor([rollout.scores.get(name, 0.0) for rollout in rollouts]) for name in names}
    return facts | {
        "truncated": torch.tensor([float(rollout.stop == "length") for rollout in rollouts]),
        "temperature": torch.tensor([rollout.sampling.temperature for rollout in rollouts]),
    }


def _reward_S(rollout: Rollout) -> Tensor:
    if rollout.score is None or not bool(rollout.mask_S.any()):
        return rollout.reward_S
    reward_S = rollout.reward_S.clone()
    # On the last decision that counts: what lies under the mask is never read.
    reward_S[int(rollout.mask_S.nonzero()[-1])] += rollout.score
    return reward_S


def micro_batches(batch: TrainBatch, tokens: int, *, whole_groups: bool = False) -> list[TrainBatch]:
    """The batch itself if it fits, else groups sorted by their size and cut so that padded size stays within ``tokens`` (a longer
    row makes its own).

    Rows of a group share their prompt in the forward pass, so a group is split only where it is larger than ``tokens``, and with
    ``whole_groups`` never.
    """
    assert batch.decisions is not None
    cost_N = batch.decisions.cost_N.tolist()
    if len(cost_N) * max(cost_N) <= tokens:
        return [batch]
    label_N = range(len(cost_N)) if batch.group_N is None else batch.group_N.tolist()
    groups: dict[int, list[int]] = defaultdict(list)
    for row, label in enumerate(label_N):
        groups[label].append(row)
    units: list[list[int]] = []
    for rows in groups.values():
        whole = whole_groups or len(rows) * max(cost_N[row] for row in rows) <= tokens
        units += [rows] if whole else [[row] for row in rows]
    cuts: list[list[int]] = [[]]
    longest = 0
    # By their sum: the rows of one prompt are laid out behind one another, and layouts of one micro-batch are padded to the longest.
    for unit in sorted(units, key=lambda rows: sum(cost_N[row] for row in rows)):
        longest = max(longest, *(cost_N[row] for row in unit))
        if cuts[-1] and (len(cuts[-1]) + len(unit)) * longest > tokens:
            cuts.append([])
            longest = max(cost_N[row] for row in unit)
        cuts[-1] += unit
    return [batch.select(torch.tensor(rows)) for rows in cuts]
