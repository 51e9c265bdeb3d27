"""Packs groups of rollouts into the rows for the learner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gimbal.advantages.reward_shaping.priced_cost import COST_AFTER
from gimbal.dataflow.several_kinds import together
from gimbal.ops.discounted import on_decisions
from gimbal.records import AbstractDecisions, Episode, Group, Rollout, TrainBatch


def pack(groups: Sequence[Group]) -> TrainBatch:
    """All rows in the order of dispatch, padded to the longest.

    The last counted reward of each row includes everything else its episode earned, mainly its score, and what was paid before it split
    off. So the rewards of any row add up to the return of its episode, and returns are comparable however an episode was split into
    rows. Where agents act at once (``Episode.apart``), each row is an episode of its own.
    """
    rollouts = [row for group in groups for row in group.rows]
    assert rollouts, "a batch needs at least one rollout"
    for rollout in rollouts:
        rollout.validate()

    roles = tuple(sorted({row.role for row in rollouts}))

    def padded(name: str) -> Shaped[Tensor, "N S"]:
        return pad_sequence([getattr(rollout, name) for rollout in rollouts], batch_first=True)

    return TrainBatch(
        mask_NS=padded("mask_S"),
        behavior_NS=padded("behavior_S"),
        version_NS=padded("version_S"),
        reward_NS=pad_sequence(
            [_reward_S(row, e) for group in groups for e in group.episodes for row in e.rows], batch_first=True
        ),
        group_N=torch.tensor([group.index for group in groups for _ in group.rows]),
        sample_N=torch.tensor([rollout.sample for rollout in rollouts]),
        episode_N=torch.tensor(_numbers(groups)),
        parent_N=torch.tensor(_parents(groups)),
        fork_N=torch.tensor([row.fork[1] if row.fork else 0 for row in rollouts]),
        role_N=torch.tensor([roles.index(row.role) for row in rollouts]),
        roles=roles,
        part_NS=_optional(rollouts, "part_S"),
        turn_NS=_optional(rollouts, "turn_S"),
        facts=_facts(rollouts),
        decisions=together([rollout.decisions for rollout in rollouts]),
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
    if any(rollout.cost_S is not None for rollout in rollouts):
        none = (torch.full((rollout.length,), torch.nan) for rollout in rollouts)
        own = [empty if row.cost_S is None else row.cost_S for row, empty in zip(rollouts, none, strict=True)]
        facts[COST_AFTER] = pad_sequence(own, batch_first=True)
    return facts | {
        "truncated": torch.tensor([float(rollout.stop == "length") for rollout in rollouts]),
        "temperature": torch.tensor([rollout.sampling.temperature for rollout in rollouts]),
        "inclusion": torch.tensor([rollout.inclusion for rollout in rollouts]),
    }


def _numbers(groups: Sequence[Group]) -> list[int]:
    """The episode of each row."""
    numbers: list[int] = []
    for group in groups:
        for episode in group.episodes:
            first = numbers[-1] + 1 if numbers else 0
            numbers += [first + place * episode.apart for place in range(len(episode.rows))]
    return numbers


def _parents(groups: Sequence[Group]) -> list[int]:
    """The row of the batch that each row branched off, -1 if it began at the prompt, or if that row was dropped."""
    parents: list[int] = []
    for group in groups:
        last: dict[int, int] = {}  # of each sample so far: the row that speaks for it
        for episode in group.episodes:
            for row in episode.rows:
                parents.append(last.get(row.fork[0], -1) if row.fork else -1)
                last[row.sample] = len(parents) - 1
    return parents


def _reward_S(row: Rollout, episode: Episode) -> Tensor:
    """The row's rewards, each on a counted decision, plus on the last one what its episode earned elsewhere."""
    if not bool(row.mask_S.any()):
        return row.reward_S
    start = row.fork[1] if row.fork else 0
    reward_S = torch.cat([torch.zeros(start), row.reward_S[start:]]) if start else row.reward_S
    own_S = reward_S if bool(row.mask_S.all()) else on_decisions(reward_S[None], row.mask_S[None])[0]
    elsewhere = sum(float(other.reward_S.sum()) for other in episode.rows if other is not row and not episode.apart)
    elsewhere += float(row.reward_S[:start].sum())  # on its way to where it split off
    earned = elsewhere if row.score is None else row.score + elsewhere
    if not (row.score is not None or elsewhere):
        return own_S
    reward_S = own_S.clone()
    reward_S[int(row.mask_S.nonzero()[-1])] += earned
    return reward_S


def micro_batches(
    batch: TrainBatch,
    tokens: int,
    *,
    whole_groups: bool = False,
    extent: Callable[[AbstractDecisions], tuple[int, int]],
) -> list[TrainBatch]:
    """The batch itself if it fits, else groups sorted by their size and cut so that each pass stays within ``tokens`` positions, which
    ``extent`` counts (a longer row makes its own).

    Rows of a group share their prefix in the forward pass, so a group is split, in halves, only if it is larger than ``tokens``, and
    with ``whole_groups`` never.
    """
    assert batch.decisions is not None
    decisions = batch.decisions
    sequences, longest = decisions.extent
    if sequences * longest > tokens:  # each row by itself; they may share what they begin with
        sequences, longest = extent(decisions)
    if sequences * longest <= tokens:
        return [batch]
    label_N = range(batch.shape[0]) if batch.group_N is None else batch.group_N.tolist()
    groups: dict[int, list[int]] = defaultdict(list)
    for row, label in enumerate(label_N):
        groups[label].append(row)
    units: list[tuple[list[int], int, int]] = []
    pending = list(groups.values())
    while pending:
        rows = pending.pop()
        sequences, longest = extent(decisions.select(torch.tensor(rows)))
        if whole_groups or len(rows) == 1 or sequences * longest <= tokens:
            units.append((rows, sequences, longest))
        else:
            pending += [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    cuts: list[list[int]] = []
    taken, widest = 0, 0
    # By their size: sequences of one pass are padded to the longest.
    for rows, sequences, longest in sorted(units, key=lambda unit: (unit[1] * unit[2], unit[0])):
        taken, widest = taken + sequences, max(widest, longest)
        if not cuts or taken * widest > tokens:
            cuts.append([])
            taken, widest = sequences, longest
        cuts[-1] += rows
    return [batch] if len(cuts) == 1 else [batch.select(torch.tensor(rows)) for rows in cuts]
