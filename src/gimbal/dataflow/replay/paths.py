"""Consecutive recorded steps, for worlds that learn on their own rollouts."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gimbal.composition import FOLLOWS
from gimbal.policies.control import Steps
from gimbal.records import TrainBatch


def unread_path(path: int, learns: Any) -> str:
    """What is wrong with a store's paths where the update learns nothing from them; "" where it does, or there are none."""
    if path == 1 or FOLLOWS in learns.effects():
        return ""
    return (
        f"store.path is {path}, consecutive steps for a world that learns on its own rollouts, and {type(learns).__name__} learns no "
        "world from them: set store.path=1"
    )


def paths(
    rows: TrainBatch, goes_on_P: Bool[Tensor, " P"], place_K: Int[Tensor, " K"], length: int, places: int
) -> Float[Tensor, "K 1 p F"]:
    """The fact ``PATH``: ``length`` consecutive steps from each of these places. Behind the last of all ``places`` comes the first, as
    in a buffer that is full."""
    steps, reward_P = rows.decisions, rows.column("reward_NS", rows)[:, 0]
    assert isinstance(steps, Steps)
    path, place = [], place_K
    for _ in range(length):
        row = (steps.action_NSA[place, 0], steps.final_NO[place], reward_P[place], steps.terminated_N[place])
        step_KF = torch.cat([x.reshape(len(place), -1).float() for x in row], -1)
        path.append(step_KF.masked_fill((place < 0)[:, None], torch.nan))
        place = torch.where((place >= 0) & goes_on_P[place], (place + 1) % places, -1)
    return torch.stack(path, 1)[:, None]
