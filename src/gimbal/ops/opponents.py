"""Rows that are compared across prompts: within one pair, those that are preferred to others."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gimbal.records import TrainBatch


def beats_NN(
    label_N: Float[Tensor, " N"], preference_N: Float[Tensor, " N"], there_N: Bool[Tensor, " N"]
) -> Bool[Tensor, "N N"]:
    """Whether row n should be above row m: they have one label, and n the higher preference. Rows not ``there_N`` are in no pair."""
    together_NN = (label_N[:, None] == label_N) & there_N[:, None] & there_N
    return together_NN & (preference_N[:, None] > preference_N)


def mean_over(x_N: Float[Tensor, " N"], of_NN: Bool[Tensor, "N N"]) -> Float[Tensor, " N"]:
    """Mean of x over the rows that each row has in ``of_NN``; 0 where it has none."""
    weight_NN = of_NN.double()
    total_N = weight_NN @ torch.where(of_NN.any(0), x_N.double(), 0)
    return (total_N / weight_NN.sum(-1).clamp(min=1)).to(x_N.dtype)


def compared(batch: TrainBatch, pair: str, preference: str, reader: object) -> Bool[Tensor, "N N"]:
    """Whether row n should score above row m: of one pair (a reward's name, "" is the group) by their preference ("" is the return)."""
    label_N = batch.column(f"score/{pair}" if pair else "group_N", reader)
    earned_N = (
        batch.column(f"score/{preference}", reader)
        if preference
        else batch.column("reward_NS", reader).double().sum(-1)
    )
    return beats_NN(label_N.double(), earned_N.double(), batch.mask_NS.any(-1))


def end_of(value_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Float[Tensor, " N"]:
    """The value at the last counted decision of each row; 0 for a row without any."""
    place_S = torch.arange(value_NS.shape[1], device=value_NS.device)
    last_NS = place_S == place_S.where(batch.mask_NS, -1).amax(-1, keepdim=True)
    return value_NS.where(last_NS, 0).sum(-1)
