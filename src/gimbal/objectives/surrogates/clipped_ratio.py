"""The clipped surrogate, one ratio a decision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.objectives.base import UPDATE, AbstractObjective
from gimbal.records import Terms, TrainBatch


def clip_pessimistically(
    ratio_NS: Float[Tensor, "N S"],
    advantage_NS: Float[Tensor, "N S"],
    low: float | Tensor,
    high: float | Tensor,
    dual: float = math.inf,
) -> tuple[Float[Tensor, "N S"], dict[str, Tensor]]:
    """min(r A, clip(r, 1 - low, 1 + high) A), with r at most ``dual`` where A < 0; and the shares clipped on each side.

    Case by case: A > 0 only bounds r from above, A < 0 from below (and by ``dual`` from above).
    """
    above, below = ratio_NS.clamp(max=1 + high), ratio_NS.clamp(min=1 - low)
    below = below.clamp(max=dual) if dual < math.inf else below
    surrogate_NS = above.where(advantage_NS > 0, below) * advantage_NS
    clipped = {
        "clip_ratio/low": ((advantage_NS < 0) & (ratio_NS < 1 - low)).float(),
        "clip_ratio/high": ((advantage_NS > 0) & (ratio_NS > 1 + high)).float(),
    }
    return surrogate_NS, clipped


def check_bounds(objective: object, low: float, high: float) -> None:
    if low < 0 or high < 0:
        raise ValueError(
            f"{type(objective).__name__} clips to [1 - {low}, 1 + {high}]; both are distances from 1, 0 or above (inf is off)"
        )


@dataclass(frozen=True, kw_only=True)
class ClippedRatio(AbstractObjective):
    """The clipped surrogate: an update gains only while the ratio stays near 1 (PPO, arXiv:1707.06347).

    loss = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A),  r = exp(logprob - proximal); where A < 0, r counts at most
    ``dual_clip`` (arXiv:1912.09729, usual value 3). The gradient is zero iff A > 0 and r > 1 + clip_high, or A < 0 and r < 1 -
    clip_low or r > dual_clip.

    - ``clip_low`` = ``clip_high`` = inf is the plain importance-sampled surrogate -r A.
    - at logprob = proximal its gradient is that of Reinforce.
    - clip-higher (DAPO, arXiv:2503.14476) is ``clip_high`` 0.28.
    - with TruncatedWeight(cap=5) as correction and Recompute as anchor it is decoupled PPO (AReaL, arXiv:2505.24298).

    Metrics: the shares of decisions clipped on each side; ``kl/old``, r - 1 - log r, which estimates KL(proximal || policy).

    Confidence: verified.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE})
    needs: ClassVar[frozenset[str]] = frozenset({"proximal_NS", "advantage_NS"})

    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float = math.inf

    def __post_init__(self) -> None:
        check_bounds(self, self.clip_low, self.clip_high)
        if self.dual_clip <= 1:
            raise ValueError(
                f"ClippedRatio.dual_clip is {self.dual_clip}; it bounds the ratio from above, so it exceeds 1"
            )

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        proximal_NS = batch.column("proximal_NS", self)
        log_ratio_NS = ops.log_ratio(logprob_NS, proximal_NS).where(batch.mask_NS, 0)
        advantage_NS = batch.column("advantage_NS", self)
        surrogate_NS, clipped = clip_pessimistically(
            log_ratio_NS.exp(), advantage_NS, self.clip_low, self.clip_high, self.dual_clip
        )
        return Terms(-surrogate_NS, clipped | {"kl/old": k3_of(log_ratio_NS)})


def k3_of(log_ratio_NS: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
    """r - 1 - log r, for decisions drawn from the anchor."""
    d = log_ratio_NS.detach()
    return d.expm1() - d
