"""The closed loop's hands: it measures how far a step moved the policy, and takes back what went too far.

The rule is ``controllers/stability.py``; here are weights, and nothing that knows what a decision is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from gimbal import ops
from gimbal.controllers.stability import Stability
from gimbal.learning.updates.base import POLICY, Metrics, Models, NotFinite
from gimbal.learning.updates.policy_gradient import has_not_moved
from gimbal.records import TrainBatch

FEWEST = 8  # rows that a distance is measured on, where the batch has them


class Loop:
    """Around each step of a learner. What it remembers is plain numbers: the state of its rule."""

    def __init__(self, rule: Stability, models: Models) -> None:
        self.rule, self.models = rule, models
        self.state = dict(rule.init())

    @property
    def factor(self) -> float:
        """Of the policy's learning rate."""
        return self.state["factor"]

    def step(self, batch: TrainBatch, passes: Callable[[], Metrics]) -> Metrics:
        """``passes`` move the weights; what went out of the region is taken back before anybody sees them."""
        rows = self._rows(batch)
        before_NS = rows.proximal_NS if has_not_moved(self.models, rows) else self._logprob_NS(rows)
        assert before_NS is not None
        # What an older policy drew counts as far as the old one would have drawn it too: else one decision that neither takes any more
        # can be all of the distance. Nothing counts more than once, which keeps it from resting on few.
        drawn_NS = (before_NS - rows.column("behavior_NS", self)).clamp(max=0).exp() * rows.mask_NS
        weights = self.models.trained([POLICY])
        old = [weight.detach().clone() for weight in weights]

        def distance() -> float:
            """KL(old || new) a decision, from these rows."""
            apart_NS = ops.k3(before_NS, self._logprob_NS(rows))
            return float(ops.masked_sum(drawn_NS * apart_NS, rows.mask_NS) / drawn_NS.sum().clamp(min=1e-9))

        try:
            metrics = passes()
            attempted = distance()
        except NotFinite:
            metrics, attempted = {}, float("nan")
        version_NS = batch.column("version_NS", self)
        age = float(ops.masked_mean((self.models.version - version_NS).float(), batch.mask_NS))
        target = self.rule.target(metrics.get("signal_frac", 1.0), age)
        kept, moved = 1.0, attempted
        with torch.no_grad():
            for _ in range(self.rule.tries):
                share = self.rule.back(moved, target)
                if share == 1.0:
                    break
                kept *= share
                for weight, was in zip(weights, old, strict=True):
                    weight.copy_(was.lerp(weight, share) if share else was)
                moved = distance() if share else 0.0
            else:
                if self.rule.back(moved, target) < 1.0:
                    kept = moved = 0.0
                    for weight, was in zip(weights, old, strict=True):
                        weight.copy_(was)
        factor, finite = self.factor, math.isfinite(attempted)
        self.state = dict(self.rule.update(self.state, attempted, target))
        return metrics | {
            "loop/target": target,
            **({"loop/attempted": attempted} if finite else {"loop/not_finite": 1.0}),
            "loop/moved": moved,
            "loop/kept": kept,
            "loop/factor": factor,
        }

    def _rows(self, batch: TrainBatch) -> TrainBatch:
        """The slice that the distance is measured on: another one each step."""
        count = batch.shape[0]
        every = max(1, min(self.rule.slice, count // FEWEST))
        return batch.select(torch.arange(self.models.version % every, count, every, device=batch.mask_NS.device))

    def _logprob_NS(self, rows: TrainBatch) -> torch.Tensor:
        return self.models.evaluated(rows)["logprob_NS"]

    def state_dict(self) -> dict[str, Any]:
        return {"rule": dict(self.state)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.state = dict(state["rule"])
