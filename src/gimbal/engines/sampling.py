"""Drawing one token for each row of logits, and what its log-probability was."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal.records import Sampling


@dataclass(frozen=True, kw_only=True)
class Distributions:
    """The ``Sampling`` of every row as columns, so that rows with different settings are drawn in one batch."""

    temperature_B: Float[Tensor, " B"]
    top_k_B: Int[Tensor, " B"]
    top_p_B: Float[Tensor, " B"]
    min_p_B: Float[Tensor, " B"]
    plain: bool  # every row is at temperature 1 on the full support: the common, fast case

    @classmethod
    def of(cls, samplings: list[Sampling], device: torch.device) -> Distributions:
        return cls(
            temperature_B=torch.tensor([s.temperature for s in samplings], device=device),
            top_k_B=torch.tensor([s.top_k for s in samplings], device=device),
            top_p_B=torch.tensor([s.top_p for s in samplings], device=device),
            min_p_B=torch.tensor([s.min_p for s in samplings], device=device),
            plain=all(s.trainable and s.temperature == 1 for s in samplings),
        )


def processed(logits_BV: Float[Tensor, "B V"], rows: Distributions) -> Float[Tensor, "B V"]:
    """Log-probabilities after temperature, top-k, top-p and min-p, renormalised; -inf outside the support.

    Greedy rows (temperature 0) keep the distribution at temperature 1: their choice is its mode.
    """
    if rows.plain:
        return logits_BV.log_softmax(-1)
    scale_B = rows.temperature_B.where(rows.temperature_B > 0, 1.0)
    logprob_BV = (logits_BV / scale_B[:, None]).log_softmax(-1)
    if bool((rows.top_k_B > 0).any() | (rows.top_p_B < 1).any()):
        sorted_BV, order_BV = logprob_BV.sort(-1, descending=True)
        rank_V = torch.arange(logits_BV.shape[-1], device=logits_BV.device)
        before_BV = sorted_BV.exp().cumsum(-1) - sorted_BV.exp()  # mass of the tokens ranked above
        k_B = rows.top_k_B.where(rows.top_k_B > 0, logits_BV.shape[-1])
        keep_BV = (rank_V < k_B[:, None]) & ((before_BV < rows.top_p_B[:, None]) | (rank_V == 0))
        keep_BV = torch.zeros_like(keep_BV).scatter_(-1, order_BV, keep_BV)
        logprob_BV = logprob_BV.where(keep_BV, -torch.inf)
    if bool((rows.min_p_B > 0).any()):
        floor_B = logprob_BV.amax(-1) + rows.min_p_B.log()
        logprob_BV = logprob_BV.where(logprob_BV >= floor_B[:, None], -torch.inf)
    return logprob_BV.log_softmax(-1)


def draw(
    logits_BV: Float[Tensor, "B V"], uniform_B: Float[Tensor, " B"], rows: Distributions
) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"], Float[Tensor, "B V"]]:
    """(token, its log-probability, all log-probabilities): by inverse CDF of ``uniform_B`` in [0, 1), greedy rows by their mode."""
    logprob_BV = processed(logits_BV.float(), rows)
    # Double: a float32 running sum over a large vocabulary loses the tail.
    mass_BV = logprob_BV.double().exp().cumsum(-1)
    # 1 - u lies in (0, 1], so a token of probability 0 is never the first to reach it.
    token_B = torch.searchsorted(mass_BV, ((1 - uniform_B) * mass_BV[:, -1])[:, None])[:, 0]
    if not rows.plain:
        token_B = token_B.where(rows.temperature_B > 0, logprob_BV.argmax(-1))
    return token_B, logprob_BV.gather(-1, token_B[:, None])[:, 0], logprob_BV
