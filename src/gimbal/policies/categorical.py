"""Categorical policies: one of several actions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from gimbal.policies.base import AbstractPolicySpec, Family
from gimbal.policies.control import STEPS, AbstractChoicePolicy, made, mlp, output_of


class CategoricalPolicy(AbstractChoicePolicy):
    """a ~ softmax(logits(o) / T)."""

    def __init__(self, observations: int, actions: int, hidden: list[int], seed: int) -> None:
        super().__init__()
        self.config = {"observations": observations, "actions": actions, "hidden": hidden}
        # A last gain of 0.01: the first policy is nearly uniform, whatever it sees.
        self.logits = mlp([observations, *hidden, actions], 0.01, seed)

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Int[Tensor, "B A"], Float[Tensor, " B"]]:
        return choose(self._logits(observation_BO), noise_BA, temperature_B)

    def assess(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        return judge(self._logits(observation_KO), action_KA, temperature)

    def _logits(self, observation_KO: Tensor) -> Tensor:
        return output_of(self.logits, observation_KO)


def choose(
    logits_BV: Float[Tensor, "B V"], noise_B1: Float[Tensor, "B 1"], temperature_B: Float[Tensor, " B"]
) -> tuple[Int[Tensor, "B 1"], Float[Tensor, " B"]]:
    """A choice of softmax(logits / T) for each row, and its log-probability; at T = 0 the mode, and 0."""
    greedy_B1 = temperature_B[:, None] == 0
    logprob_BV = (logits_BV / torch.where(greedy_B1, 1, temperature_B[:, None])).log_softmax(-1)
    # The first action at which the cumulated probability exceeds the noise; rounding may leave the last sum below 1.
    drawn_B1 = (logprob_BV.exp().cumsum(-1) <= noise_B1).sum(-1, keepdim=True).clamp(max=logits_BV.shape[1] - 1)
    action_B1 = torch.where(greedy_B1, logits_BV.argmax(-1, keepdim=True), drawn_B1)
    return action_B1, torch.where(greedy_B1, 0, logprob_BV.gather(-1, action_B1))[:, 0]


def judge(
    logits_KV: Float[Tensor, "K V"], action_K1: Shaped[Tensor, "K 1"], temperature: float
) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
    """The log-probability of each choice under softmax(logits / T), and the entropy."""
    logprob_KV = (logits_KV / temperature).log_softmax(-1)
    return logprob_KV.gather(-1, action_K1)[:, 0], -(logprob_KV * logprob_KV.exp()).sum(-1)


@dataclass(frozen=True, kw_only=True)
class Categorical(AbstractPolicySpec):
    """A categorical policy on ``observations`` inputs with ``actions`` choices, or the one saved in the directory ``model``."""

    family: ClassVar[Family] = STEPS

    observations: int
    actions: int
    hidden: tuple[int, ...] = (64, 64)
    model: str = ""

    def load(self, seed: int = 0) -> CategoricalPolicy:
        return made(CategoricalPolicy, self, seed)

    def at(self, directory: Path) -> Categorical:
        return replace(self, model=str(directory))
