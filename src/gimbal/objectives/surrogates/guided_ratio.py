"""Decisions of a guide among the policy's own, each by a rule that fits it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.objectives.base import UPDATE, AbstractCorrection, AbstractObjective
from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio, check_bounds
from gimbal.records import Terms, TrainBatch

GUIDED = "score/guided"  # fact: how many of a row's last decisions are a guide's


def last_NS(mask_NS: Bool[Tensor, "N S"], count_N: Float[Tensor, " N"]) -> Bool[Tensor, "N S"]:
    """The counted decisions among the last so many of each row, which end at its last counted one."""
    after_NS = mask_NS.flip(-1).cummax(-1).values.flip(-1)
    left_NS = after_NS.flip(-1).cumsum(-1).flip(-1)
    return mask_NS & (left_NS <= count_N[:, None])


@dataclass(frozen=True, kw_only=True)
class GuidedRatio(AbstractObjective):
    """Clips the policy's own decisions and shapes the guide's, which have no old policy (SCOPE, arXiv:2602.24110; LUFFY,
    arXiv:2504.14945).

    loss = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) on own decisions, as ClippedRatio; on the guide's, with pi the policy's
    probability, -A strength pi / (pi + shape) if ``form`` is "shaped", whose gradient is proportional to shape pi / (pi + shape)^2 and
    largest at pi = shape; or -strength log pi if it is "likelihood". The guide's decisions are the last n of a row, with n the fact
    "score/guided" (written by filters.StepRepair); a batch without that fact has none.

    - no guided decision: ClippedRatio.
    - a fully guided row: off-policy imitation, as in LUFFY.
    - ``form`` "likelihood", all guided, ``strength`` 1: Likelihood.
    - pi far above ``shape``: hardly any gradient: what is known is not learned again.

    Published: ``shape`` 0.1 (LUFFY). No engine sampled the guide, so discrepancy weights do not apply: use it without a correction.

    Confidence: abstract-only; ours: the loss of SCOPE, taken from LUFFY, and the choice of ``form``.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE})
    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "advantage_NS"})

    form: Literal["shaped", "likelihood"] = "shaped"
    shape: float = 0.1
    strength: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.2

    def __post_init__(self) -> None:
        check_bounds(self, self.clip_low, self.clip_high)
        if self.shape <= 0 or self.strength < 0:
            raise ValueError(
                f"GuidedRatio has shape {self.shape}, which must be above 0, and strength {self.strength}, 0 (off) or above"
            )

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        own = ClippedRatio(clip_low=self.clip_low, clip_high=self.clip_high)(logprob_NS, batch)
        guided_NS = self._guided_NS(batch)
        precise_NS = logprob_NS.to(torch.promote_types(logprob_NS.dtype, torch.float32)).where(guided_NS, 0)
        if self.form == "shaped":
            shaped_NS = batch.column("advantage_NS", self) * torch.sigmoid(precise_NS - math.log(self.shape))
        else:
            shaped_NS = precise_NS
        metrics = {name: value.where(~guided_NS, 0) for name, value in own.metrics.items()}
        metrics["guided_frac"] = guided_NS.float()
        return Terms(torch.where(guided_NS, -self.strength * shaped_NS, own.loss_NS), metrics)

    def _guided_NS(self, batch: TrainBatch) -> Bool[Tensor, "N S"]:
        """The last decisions of each row, those that do not count among them."""
        if GUIDED not in batch.facts:
            return torch.zeros_like(batch.mask_NS)
        return last_NS(batch.mask_NS, batch.column(GUIDED, self))

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(AbstractCorrection):
            yield Refusal(
                "GuidedRatio already weights a guide's decisions, and a correction weights them again: set correction=None"
            )
