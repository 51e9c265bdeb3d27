"""Imitates good rollouts from another temperature."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractAdvantage
from gimbal.composition import ENTROPY, TEMPERS, Advice, Composition, Refusal, Verdict
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class TemperedImitation(AbstractAdvantage):
    """Steers entropy by imitating good rollouts sampled hotter or colder (AEPO, arXiv:2510.08141).

    A' = (hot or cold) if A > threshold, else 0, on rollouts sampled above or below ``temperature``, the run's own; A' = A on the
    others. The policy is trained at its own temperature throughout, so imitating hot samples flattens it and imitating cold ones
    sharpens it.

    - no rollout at another temperature: A.
    - every rollout at another temperature, ``hot`` = ``cold`` = 1: supervised training on the good rollouts (RAFT).
    - ``hot`` = ``cold`` = 0: those rollouts teach nothing.

    Groups of one temperature come from workflows.Tempered. Do not correct for the ratio to the sampler: that would undo the
    temperature. Published: ``threshold`` 0.05, advantage 1, half as many rollouts of cold groups as of hot ones, replacing other
    rows; ours: half the weight, and no rows are replaced.

    Confidence: verified.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS"})

    temperature: float = 1.0
    threshold: float = 0.05
    hot: float = 1.0
    cold: float = 0.5

    def __post_init__(self) -> None:
        if self.hot < 0 or self.cold < 0 or self.threshold < 0:
            raise ValueError(
                "TemperedImitation has hot, cold or threshold below 0; it imitates good rollouts, so all are 0 or above"
            )

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        advantage_NS = batch.column("advantage_NS", self)
        heat_N = self._heat_N(batch)
        weight_N = torch.where(heat_N > 0, self.hot, self.cold).to(advantage_NS.dtype)
        imitated_NS = weight_N[:, None] * (advantage_NS > self.threshold)
        return advantage_NS.where(heat_N[:, None] == 0, imitated_NS) * batch.mask_NS

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        heat_N = self._heat_N(batch)
        good_N = (batch.column("advantage_NS", self) > self.threshold).any(-1)
        return {
            "imitated/hot": float(((heat_N > 0) & good_N).sum()),
            "imitated/cold": float(((heat_N < 0) & good_N).sum()),
        }

    def _heat_N(self, batch: TrainBatch) -> Float[Tensor, " N"]:
        """Above 0 where sampled hotter than the run, below 0 where colder, 0 where equal (or not recorded)."""
        drawn_N = batch.facts.get(
            "temperature", torch.full_like(batch.mask_NS[:, 0], self.temperature, dtype=torch.float32)
        )
        return torch.where((drawn_N / self.temperature - 1).abs() > 1e-6, drawn_N - self.temperature, 0)

    def effects(self) -> frozenset[str]:
        return frozenset({ENTROPY})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if self.temperature != whole.run.sampling.temperature:
            yield Refusal(
                "TemperedImitation recognises groups by their temperature: set its temperature to sampling.temperature"
            )
        if not whole.doing(TEMPERS):
            yield Advice(
                "TemperedImitation without the workflow Tempered: no group is at another temperature, so it does nothing"
            )
