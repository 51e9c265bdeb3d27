"""Drawing one token for each row of logits, and what its log-probability was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal.policies.token import Sampling, of_tokens
from gimbal.records import AbstractSampling


@dataclass(frozen=True, kw_only=True)
class Distributions:
    """The ``Sampling`` of every row as columns, so rows with different settings share one batch.

    A column is None where no row uses it. Greedy rows have the temperature 1 and no truncation: they choose the mode, and
    their log-probabilities are the model's own.
    """

    temperature_B: Float[Tensor, " B"] | None
    greedy_B: Tensor | None
    top_k_B: Int[Tensor, " B"] | None
    top_p_B: Float[Tensor, " B"] | None
    min_p_B: Float[Tensor, " B"] | None

    @classmethod
    def of(cls, samplings: Sequence[AbstractSampling], device: torch.device) -> Distributions:
        def column(values: Sequence[float | int], off: float | int) -> Tensor | None:
            return None if all(value == off for value in values) else torch.tensor(values, device=device)

        drawn = [of_tokens(s) if s.temperature else Sampling() for s in samplings]
        greedy = [s.temperature == 0 for s in samplings]
        # A running sum may pass 1 by rounding, so "all of it" is not 1 but infinity.
        return cls(
            temperature_B=column([float(s.temperature) for s in drawn], 1),
            greedy_B=torch.tensor(greedy, device=device) if any(greedy) else None,
            top_k_B=column([s.top_k or 2**62 for s in drawn], 2**62),
            top_p_B=column([s.top_p if s.top_p < 1 else torch.inf for s in drawn], torch.inf),
            min_p_B=column([float(s.min_p) for s in drawn], 0),
        )

    def repeated(self, count: int) -> Distributions:
        """Each row ``count`` times: one for each of its positions."""
        if count == 1:
            return self
        columns = {name: column.repeat_interleave(count) for name, column in vars(self).items() if column is not None}
        return replace(self, **columns)


def processed(logits_BV: Float[Tensor, "B V"], rows: Distributions) -> Float[Tensor, "B V"]:
    """Log-probabilities after temperature, top-k, top-p and min-p, in this order, each followed by renormalisation; -inf outside the
    support.

    top-k: the k likeliest tokens. top-p: the fewest of them whose mass reaches p. min-p: those of at least min_p times the mode's
    probability. The mode is always kept.
    """
    logits_BV = logits_BV.float()
    if rows.temperature_B is not None:
        logits_BV = logits_BV / rows.temperature_B[:, None]
    if rows.top_k_B is rows.top_p_B is rows.min_p_B is None:
        return logits_BV.log_softmax(-1)
    sorted_BV, order_BV = logits_BV.sort(dim=-1, descending=True, stable=True)
    if rows.top_k_B is not None:
        rank_V = torch.arange(logits_BV.shape[-1], device=logits_BV.device)
        sorted_BV = sorted_BV.where(rank_V < rows.top_k_B[:, None], -torch.inf)
    if rows.top_p_B is not None:
        p_BV = sorted_BV.softmax(-1)
        before_BV = p_BV.cumsum(-1) - p_BV  # mass of the tokens ranked above; 0 for the mode
        sorted_BV = sorted_BV.where(before_BV < rows.top_p_B[:, None], -torch.inf)
    if rows.min_p_B is not None:
        sorted_BV = sorted_BV.where(sorted_BV - sorted_BV[:, :1] >= rows.min_p_B.log()[:, None], -torch.inf)
    return torch.empty_like(sorted_BV).scatter_(-1, order_BV, sorted_BV.log_softmax(-1))


def draw(
    logits_BV: Float[Tensor, "B V"], uniform_B: Float[Tensor, " B"], rows: Distributions
) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"], Float[Tensor, "B V"]]:
    """(token, its log-probability, all log-probabilities): by inverse CDF of ``uniform_B`` in [0, 1), greedy rows by their mode."""
    logprob_BV = processed(logits_BV, rows)
    # Double: a float32 running sum over a large vocabulary loses the tail.
    mass_BV = logprob_BV.exp().cumsum(-1, dtype=torch.float64)
    # 1 - u lies in (0, 1], so a token of probability 0 is never the first to reach it, and there always is one that does.
    token_B = torch.searchsorted(mass_BV, ((1 - uniform_B) * mass_BV[:, -1])[:, None])[:, 0]
    if rows.greedy_B is not None:
        token_B = token_B.where(~rows.greedy_B, logprob_BV.argmax(-1))
    return token_B, logprob_BV.gather(-1, token_B[:, None])[:, 0], logprob_BV


def completed(drawn: Sequence[int], stops: Sequence[str], decode: Callable[[Sequence[int]], str]) -> bool:
    """Whether the newest of these tokens completed one of the stop strings. Only a tail that could hold it is decoded."""
    if not stops:
        return False
    tail = drawn[-max(map(len, stops)) - 8 :]
    text = decode(tail)
    if not any(stop in text for stop in stops):
        return False
    before = decode(tail[:-1])  # a resumed rollout may hold one already
    return any(text.count(stop) > before.count(stop) for stop in stops)
