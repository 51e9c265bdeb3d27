"""Rewards one by one, before they are weighted and summed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.records import TrainBatch

ERROR = "error"  # kept among the scores, and no reward: whether a scorer failed


def components(batch: TrainBatch, names: Sequence[str], reader: object) -> dict[str, Float[Tensor, " N"]]:
    """The named rewards of each row in float64, or all of them; a ValueError if the batch does not hold one."""
    scores = {name: score_N for name, score_N in sorted(batch.scores.items()) if name != ERROR}
    missing = [name for name in names if name not in scores]
    if missing or not scores:
        raise ValueError(
            f"{type(reader).__name__} reads the rewards {missing or 'by name'}, but this batch has {sorted(scores)}: name "
            "rewards of the run, or fill TrainBatch(facts={'score/NAME': ...})"
        )
    return {name: scores[name].detach().double() for name in names or scores}


def weights_of(scores: dict[str, Tensor], weights: Sequence[float]) -> Float[Tensor, " K"]:
    """The weights in the order of the scores; 1 each if none are given."""
    first = next(iter(scores.values()))
    return torch.tensor(weights or [1.0] * len(scores), dtype=torch.float64, device=first.device)


def added_at_end(batch: TrainBatch, bonus_N: Float[Tensor, " N"], reader: object) -> Float[Tensor, "N S"]:
    """The rewards with a bonus on each row's last counted decision, where the rollout's score is."""
    reward_NS = batch.column("reward_NS", reader)
    place_S = torch.arange(batch.shape[1], device=reward_NS.device)
    last_NS = place_S == place_S.where(batch.mask_NS, -1).amax(-1, keepdim=True)
    return reward_NS + bonus_N.to(reward_NS.dtype)[:, None] * last_NS


def check_weights(reader: object, names: Sequence[str], weights: Sequence[float]) -> None:
    if weights and len(weights) != len(names):
        raise ValueError(
            f"{type(reader).__name__} has {len(weights)} weights for {len(names)} rewards; name each weighted reward in rewards=(...)"
        )
