"""The clipped surrogate with bounds that are searched for, minibatch by minibatch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.objectives.base import UPDATE, AbstractObjective
from gimbal.objectives.surrogates.clipped_ratio import check_bounds, clip_pessimistically, k3_of
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class BalancedClip(AbstractObjective):
    """Widens the clip bounds until good decisions supply a target share of the objective (BAPO, arXiv:2510.18927).

    With e = min(r, 1 + high) where A >= 0 and max(r, 1 - low) where A < 0, P = sum m max(e A, 0) and M = sum m max(-e A, 0) over the
    minibatch: from ``clip_low`` down to ``clip_low_end``, then from ``clip_high`` up to ``clip_high_end``, by ``step``, until
    P / (P + M) >= ``target``. The loss is that of ClippedRatio with the bounds found and ``dual_clip``.

    - equal first and last bounds: ClippedRatio.
    - r = 1 everywhere: the bounds do not matter to the value.
    - ``target`` = 0: the first bounds.

    Published: target .5; lower bound .6 to .8, upper 1.2 to 2 (to 3 in the paper), step .05. Raising the lower bound takes gradient
    from bad decisions, although by this measure it weighs them more. ``first`` is the bound that moves first: upper in the paper, lower
    in the released recipe (the default here).

    Confidence: partial; the loss is from the official code; ours: clipped decisions stay in P and M while bounds move.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE})
    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "advantage_NS", "current_NS"})

    target: float = 0.5
    clip_low: float = 0.4
    clip_low_end: float = 0.2
    clip_high: float = 0.2
    clip_high_end: float = 1.0
    step: float = 0.05
    first: Literal["low", "high"] = "low"
    dual_clip: float = 3.0

    def __post_init__(self) -> None:
        check_bounds(self, self.clip_low_end, self.clip_high)
        if self.clip_low < self.clip_low_end or self.clip_high > self.clip_high_end or self.step <= 0:
            raise ValueError(
                "BalancedClip tightens clip_low to clip_low_end and widens clip_high to clip_high_end by a step above 0: "
                "set clip_low >= clip_low_end and clip_high <= clip_high_end"
            )
        if self.first not in ("low", "high"):
            raise ValueError(f"BalancedClip.first is {self.first!r}; choose low or high")

    def survey(self, batch: TrainBatch) -> Mapping[str, Tensor]:
        ratio_NS = ops.ratio(batch.column("current_NS", self), batch.column("proximal_NS", self))
        advantage_NS = batch.column("advantage_NS", self)
        for low, high in self._bounds():
            above_NS, below_NS = ratio_NS.clamp(max=1 + high), ratio_NS.clamp(min=1 - low)
            gain_NS = above_NS.where(advantage_NS >= 0, below_NS) * advantage_NS
            good, bad = (ops.masked_sum(part.clamp(min=0), batch.mask_NS) for part in (gain_NS, -gain_NS))
            if good >= self.target * (good + bad):
                break
        fill = torch.ones(batch.shape[0], device=ratio_NS.device)
        return {"balanced_clip/low": low * fill, "balanced_clip/high": high * fill}

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        batch = self.surveyed(logprob_NS, batch, "balanced_clip/low")
        low_N, high_N = batch.facts["balanced_clip/low"], batch.facts["balanced_clip/high"]
        log_ratio_NS = ops.log_ratio(logprob_NS, batch.column("proximal_NS", self)).where(batch.mask_NS, 0)
        surrogate_NS, metrics = clip_pessimistically(
            log_ratio_NS.exp(), batch.column("advantage_NS", self), low_N[:, None], high_N[:, None], self.dual_clip
        )
        metrics |= {"clip_bound/low": low_N[:, None].expand_as(surrogate_NS), "kl/old": k3_of(log_ratio_NS)}
        return Terms(-surrogate_NS, metrics | {"clip_bound/high": high_N[:, None].expand_as(surrogate_NS)})

    def _bounds(self) -> Iterator[tuple[float, float]]:
        """Pairs of (low, high) in the order they are tried; the last stays if none suffices."""
        low, high = self.clip_low, self.clip_high
        yield low, high
        for side in (self.first, "high" if self.first == "low" else "low"):
            # Whole steps, the last one cut: no sum of floats decides how many there are.
            start, end = (low, self.clip_low_end) if side == "low" else (high, self.clip_high_end)
            for k in range(1, 1 + int(-(-abs(end - start) // self.step) if abs(end - start) > 1e-9 else 0)):
                moved = max(start - k * self.step, end) if side == "low" else min(start + k * self.step, end)
                low, high = (moved, high) if side == "low" else (low, moved)
                yield low, high
