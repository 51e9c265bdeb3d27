"""A head that predicts from a hidden state whether a rollout will be right, its calibration, and who survives by it.

Its memory is a plain dictionary that is never changed in place: a workflow keeps it, and a checkpoint saves it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.ops import philox
from gimbal.records import Rollout

Memory = Mapping[str, Any]
UNTRAINED: Memory = {"rounds": 0, "weights": [], "moments": [], "count_2B": None}
BETAS, TINY = (0.9, 0.999), 1e-8  # Adam's


@dataclass(frozen=True, kw_only=True)
class QualityHead:
    """A network of two layers on a hidden state of size 1 (root mean square), and counts of its outputs by outcome.

    s = sigmoid(head(h)),  q = pi P(b | 1) / (pi P(b | 1) + (1 - pi) P(b | 0)),

    P(b | y) = (n_y[b] + ``prior``) / (sum n_y + ``prior`` ``bins``),

    where b is the bin of s, n_y counts the rollouts of outcome y so far, and pi is the share of those that were right. The head has
    ``width`` hidden units, and makes ``passes`` steps of Adam at ``rate`` over each lot of rollouts.

    Published (ARRoL, arXiv:2603.24840): 128 bins, prior 1. Ours: the width, the rate, the passes, and hidden states of one size.
    """

    bins: int = 128
    prior: float = 1.0
    width: int = 64
    rate: float = 1e-3
    passes: int = 10

    def __post_init__(self) -> None:
        if min(self.bins, self.width, self.passes) < 1 or not (0 < self.prior < math.inf and 0 <= self.rate < math.inf):
            raise ValueError(
                f"QualityHead has bins {self.bins}, width {self.width}, passes {self.passes} (1 or more), prior {self.prior} (above 0) "
                f"and rate {self.rate} (0 or above), all of them finite"
            )

    def score(self, memory: Memory, state_NH: Float[Tensor, "N H"]) -> Float[Tensor, " N"]:
        """s of each; .5 before it has learned."""
        if not memory["weights"]:
            return torch.full((len(state_NH),), 0.5, dtype=torch.float64)
        return _logit(memory["weights"], _scaled(state_NH)).sigmoid()

    def quality(self, memory: Memory, score_N: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
        """q of each: the probability that it ends right."""
        count_2B = memory["count_2B"]
        if count_2B is None:
            return score_N
        chance_2B = (count_2B + self.prior) / (count_2B.sum(1, keepdim=True) + self.prior * self.bins)
        right = count_2B[1].sum() / count_2B.sum()
        both_2N = torch.stack([1 - right, right])[:, None] * chance_2B[:, self._bin(score_N)]
        return both_2N[1] / both_2N.sum(0)

    def learned(self, memory: Memory, state_NH: Float[Tensor, "N H"], right_N: Float[Tensor, " N"]) -> Memory:
        """After these rollouts: counted by what it said of them, then learned from by cross-entropy, with Adam."""
        count_2B = (
            torch.zeros(2, self.bins, dtype=torch.float64) if memory["count_2B"] is None else memory["count_2B"].clone()
        )
        count_2B.index_put_(
            (right_N.long(), self._bin(self.score(memory, state_NH))), torch.ones(()).double(), accumulate=True
        )
        scaled_NH = _scaled(state_NH)
        weights = [tensor.clone() for tensor in memory["weights"] or self._begun(state_NH.shape[1])]
        moments = [
            tensor.clone() for tensor in memory["moments"] or [torch.zeros_like(w) for w in weights for _ in BETAS]
        ]
        for step in range(1 + memory["rounds"] * self.passes, 1 + (memory["rounds"] + 1) * self.passes):
            with torch.enable_grad():
                held = [tensor.requires_grad_() for tensor in weights]
                loss = torch.nn.functional.binary_cross_entropy_with_logits(_logit(held, scaled_NH), right_N.double())
                slopes = torch.autograd.grad(loss, held)
            weights = [
                self._moved(weight.detach(), slope, moments[2 * at : 2 * at + 2], step)
                for at, (weight, slope) in enumerate(zip(weights, slopes, strict=True))
            ]
        return {"rounds": memory["rounds"] + 1, "weights": weights, "moments": moments, "count_2B": count_2B}

    def noted(self, memory: Memory, group: int, rows: Sequence[Rollout], values: Sequence[float | None]) -> Memory:
        """``memory`` with the states of these rows and whether they are right (0.5 or more), to be learned from later."""
        told = [
            (group, row.sample, row.state_H, float(value >= 0.5))
            for row, value in zip(rows, values, strict=True)
            if value is not None and value == value  # no verdict, no lesson
        ]
        return {**memory, "ended": (*memory["ended"], *told)}

    def renewed(self, memory: Memory) -> Memory:
        """Learned from all that ended under the weights before, in the order of dispatch, whichever ended first."""
        if not memory["ended"]:
            return memory
        ended = sorted(memory["ended"], key=lambda one: one[:2])
        state_NH = torch.stack([state_H for _, _, state_H, _ in ended])
        right_N = torch.tensor([right for *_, right in ended], dtype=torch.float64)
        return {"head": self.learned(memory["head"], state_NH, right_N), "ended": ()}

    def _moved(self, weight: Tensor, slope: Tensor, moments: Sequence[Tensor], step: int) -> Tensor:
        for moment, beta, value in zip(moments, BETAS, (slope, slope.square()), strict=True):
            moment.lerp_(value, 1 - beta)
        mean, square = (moment / (1 - beta**step) for moment, beta in zip(moments, BETAS, strict=True))
        return weight - self.rate * mean / (square.sqrt() + TINY)

    def _begun(self, size: int) -> list[Tensor]:
        """Weights of a head that says .5 of everything."""
        first_HW = torch.from_numpy(philox("quality head", size, self.width).standard_normal((size, self.width)))
        first_HW /= size**0.5
        nought_W = first_HW.new_zeros(self.width)
        return [first_HW, nought_W, nought_W.clone(), first_HW.new_zeros(())]

    def _bin(self, score_N: Float[Tensor, " N"]) -> Tensor:
        return (score_N * self.bins).long().clamp(max=self.bins - 1)


def _scaled(state_NH: Float[Tensor, "N H"]) -> Float[Tensor, "N H"]:
    wide_NH = state_NH.double()
    return wide_NH / wide_NH.square().mean(1, keepdim=True).sqrt().clamp(min=TINY)


def _logit(weights: Sequence[Tensor], state_NH: Float[Tensor, "N H"]) -> Float[Tensor, " N"]:
    first_HW, shift_W, second_W, shift = weights
    return torch.relu(state_NH @ first_HW + shift_W) @ second_W + shift


def survival(lean_N: Float[Tensor, " N"], keep: float, least: float, most: float) -> Float[Tensor, " N"]:
    """clip(lean + delta, least, most) with the delta at which their mean is ``keep``, by bisection."""
    low, high = least - float(lean_N.max()), most - float(lean_N.min())
    for _ in range(60):
        middle = (low + high) / 2
        if float((lean_N + middle).clamp(least, most).mean()) < keep:
            low = middle
        else:
            high = middle
    return (lean_N + high).clamp(least, most)
