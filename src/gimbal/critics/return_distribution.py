"""A critic that says how much of a return is chance: one network, a normal distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.ops import stable_hash
from gimbal.ops.weights import weights_of
from gimbal.policies.ensemble import ensemble, seen_and_done

LEAST_SPREAD = -5.0  # of what softplus makes the deviation of: .0067


class ReturnDistributionNetwork(nn.Module):
    """(mean, deviation) of the return of a in o: linear layers on [o, a / ``bound``], each with a layer norm and ReLU behind it;
    deviation = softplus(max(last output, -5)). ``kept_KD`` are factors of all hidden units, before the layer norm."""

    def __init__(self, inputs: int, hidden: tuple[int, ...], bound: float, seed: int) -> None:
        super().__init__()
        self.bound, self.inputs = bound, inputs
        self.weights, self.biases = ensemble((inputs, *hidden, 2), 1, seed)
        self.gains = nn.ParameterList(nn.Parameter(torch.ones(width)) for width in hidden)
        self.shifts = nn.ParameterList(nn.Parameter(torch.zeros(width)) for width in hidden)

    def forward(
        self,
        observation_KO: Float[Tensor, "K O"],
        action_KA: Float[Tensor, "K A"],
        kept_KD: Float[Tensor, "K D"] | None = None,
    ) -> Float[Tensor, "K 2"]:
        x_KI = seen_and_done(observation_KO, action_KA, self.bound, self.inputs)
        *hidden, last = zip(weights_of(self.weights), weights_of(self.biases), strict=True)
        scales, at = zip(hidden, weights_of(self.gains), weights_of(self.shifts), strict=True), 0
        for (weight_1IJ, bias_11J), gain_J, shift_J in scales:
            x_KI = torch.addmm(bias_11J[0], x_KI, weight_1IJ[0])
            width = x_KI.shape[1]
            if kept_KD is not None:
                x_KI = x_KI * kept_KD[:, at : at + width]
            at += width
            x_KI = nn.functional.layer_norm(x_KI, (width,), gain_J, shift_J).relu()
        mean_K, spread_K = torch.addmm(last[1][0], x_KI, last[0][0]).unbind(-1)
        return torch.stack([mean_K, nn.functional.softplus(spread_K.clamp(min=LEAST_SPREAD))], -1)


@dataclass(frozen=True, kw_only=True)
class ReturnDistribution:
    """One network that predicts a normal distribution of the return, in place of twins (STAC, arXiv:2601.00737).

        loss      -log N(y; mean(o, a), deviation(o, a)^2)
        worth     mean(o, a) - ``pessimism`` deviation(o, a)      what a target y is made of, and what a policy climbs

    y is one number, made of the worth of the next action: of the next return's own deviation nothing is added, so the deviation is that
    of one step (of its reward, its next state and its next action). Where there is no chance nothing is held back. ``dropout`` is
    the part of the hidden units that each pass of training leaves out (in the critic, and its target).

    - ``pessimism`` = 0, deviation held at 1: SAC with one critic, its loss halved (and a constant).
    - ``pessimism`` = 0: a critic that is neutral to risk, whose steps weigh less where returns are uncertain.

    Published: layer norms, 256 x 256, dropout .01, pessimism 0 to .5 by task.

    Confidence: verified; ours: no dropout in the policy, whose networks have no layer norm either, and which is played by its mode.
    """

    observations: int
    actions: int
    hidden: tuple[int, ...] = (64, 64)
    bound: float = 1.0  # of actions: what an input of 1 stands for
    pessimism: float = 0.25
    dropout: float = 0.01

    def __post_init__(self) -> None:
        if not 0 < self.bound < math.inf or not 0 <= self.pessimism < math.inf or not 0 <= self.dropout < 1:
            raise ValueError(
                f"ReturnDistribution has bound {self.bound} (above 0 and finite), pessimism {self.pessimism} (0 or above) and dropout "
                f"{self.dropout} (from 0 to below 1)"
            )

    def load(self, seed: int) -> ReturnDistributionNetwork:
        # A separate stream: the run's policy is initialised from the same seed.
        first = stable_hash("Q", seed) % 2**63
        return ReturnDistributionNetwork(self.observations + self.actions, self.hidden, self.bound, first)

    def kept(self, generator: np.random.Generator, count: int) -> Float[Tensor, "K D"]:
        """Factors of the hidden units of so many passes: 0, or 1 / (1 - dropout) where one is kept."""
        kept_KD = generator.random((count, sum(self.hidden)), dtype=np.float32) >= self.dropout
        return torch.from_numpy(kept_KD.astype(np.float32) / np.float32(1 - self.dropout))

    def loss(self, q_K2: Float[Tensor, "K 2"], target_K: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
        mean_K, deviation_K = q_K2.unbind(-1)
        apart_K = (target_K - mean_K) / deviation_K
        return apart_K.square() / 2 + deviation_K.log() + math.log(2 * math.pi) / 2

    def worth(self, q_K2: Float[Tensor, "K 2"]) -> Float[Tensor, " K"]:
        mean_K, deviation_K = q_K2.unbind(-1)
        return mean_K - self.pessimism * deviation_K

    def told(self, q_K2: Float[Tensor, "K 2"]) -> Mapping[str, Float[Tensor, " K"]]:
        return {"q/mean": q_K2[:, 0], "q/deviation": q_K2[:, 1]}
