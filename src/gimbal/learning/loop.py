"""The closed loop around a learner step: measures how far it moved the policy, scales back what went too far, keeps good weights.

The rules are ``controllers/stability.py`` and ``controllers/fallback.py``; here are weights, and nothing that knows what a decision is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from gimbal import ops
from gimbal.controllers.fallback import SLOWER, Fallback, due
from gimbal.controllers.stability import Stability
from gimbal.learning.updates.base import POLICY, Metrics, Models, NotFinite
from gimbal.learning.updates.policy_gradient import has_not_moved
from gimbal.records import TrainBatch

FEWEST = 8  # rows that a distance is measured on, where the batch has them
UNDONE = {"loop/not_finite", "loop/returned"}  # figures of a step that has none of its losses
MOST_UNDONE = 10  # steps undone in a row after which the run ends: the rate is at its least long before
Weights = dict[str, Tensor]


class Loop:
    """Runs around each learner step. It keeps the state of its rules and, with a fallback, the weights of two past versions."""

    def __init__(self, rule: Stability, models: Models) -> None:
        self.rule, self.models = rule, models
        self.state = dict(rule.init())
        self.score = {} if rule.fallback is None else dict(rule.fallback.init())
        self.good: Weights = {}
        self.candidate = {} if rule.fallback is None else self._weights()
        self.undone = 0  # steps in a row
        self.schedules: list[float] = []  # what else the policy's rate was multiplied with, of each move of this step

    @property
    def factor(self) -> float:
        """Of the policy's learning rate."""
        return self.state["factor"]

    def step(self, batch: TrainBatch, passes: Callable[[], Metrics]) -> Metrics:
        """``passes`` move the weights; what went out of the region is taken back before anybody sees them."""
        if self.rule.fallback is not None and due(self.score):
            return self._return(self.rule.fallback)
        with self.models.timed("loop"):
            surprise, discrepancy, distance = self._distance(batch)
            self.state, old, others = dict(self.rule.seen(self.state, surprise)), self._weights(), self._others()
        self.schedules.clear()
        said = ""
        try:
            metrics = passes()
        except NotFinite as error:
            metrics, said = {}, str(error)
        with self.models.timed("loop"):
            attempted = distance() if metrics else math.nan
            target = self.rule.target(self.state, discrepancy) * self.score.get("care", 1.0)
            moved, kept = self._taken_back(old, attempted, target, distance)
            if not math.isfinite(attempted):
                self._write_others(others)
        factor = self.factor
        self._learn(metrics, surprise, attempted, target)
        self.undone = self.undone + 1 if kept == 0.0 else 0
        if self.undone >= MOST_UNDONE:
            raise NotFinite(
                f"{self.undone} steps in a row were undone, the last at {factor:.3g} times the learning rate given, and the weights "
                f"are those from before them: {said or f'step {self.models.version + 1} still went {attempted:.2g} nats a decision'}"
            )
        told = {"loop/attempted": attempted} if math.isfinite(attempted) else {"loop/not_finite": 1.0}
        told |= {"loop/discrepancy": discrepancy, "loop/target": target}
        told |= {"loop/moved": moved, "loop/kept": kept, "loop/factor": factor}
        if self.rule.at_end(self.factor) and not self.rule.at_end(factor):
            told["loop/at_end"] = self.factor  # said once, in the step that led there
        return metrics | told

    def _learn(self, metrics: Metrics, surprise: float, attempted: float, target: float) -> None:
        """Let the rule see the distance, where it is informative about the learning rate."""
        if math.isnan(surprise):  # no decision counts: nothing was measured
            return
        schedule = statistics.fmean(self.schedules) if self.schedules else 1.0
        after = dict(self.rule.update(self.state, attempted, target, schedule))
        # Where the objective moves no decision (none has an advantage, or all are clipped) only momentum and regularisers move the
        # weights. How little says nothing of the rate; but a regulariser that goes too far does so each time.
        too_far = metrics.get("grad_norm", 0.0) > 0 and self.rule.back(attempted, target) < 1.0
        if metrics.get("live_frac", 1.0) > 0 or (too_far and after["factor"] < self.factor):
            self.state = after

    def control(self, metrics: Mapping[str, float]) -> Metrics:
        """After the step, given all its metrics: keep the current weights, or let the next step return to a past version's."""
        rule, before, version = self.rule.fallback, self.score, self.models.version
        if rule is None or not {"reward/mean", "staleness/max"} <= metrics.keys():
            return {}
        oldest = version - 1 - int(metrics["staleness/max"])
        self.score = dict(rule.update(before, metrics["reward/mean"], oldest, version))
        if self.score["candidate"] == version != before["candidate"]:
            self.good, self.candidate = self.candidate, self._weights()
        return {"loop/returns": self.score["returns"], "loop/good": self.score["good"]}

    def _return(self, rule: Fallback) -> Metrics:
        """To the good version's weights, with an optimiser that has forgotten the way that led away from them."""
        self._write(self.good)
        self.models.optimizers[POLICY].state.clear()
        self.score = dict(rule.returned(self.score, self.models.version + 1))
        self.state["factor"] *= SLOWER
        self.candidate = self._weights()
        return {"loop/returned": self.score["good"], "loop/factor": self.factor}

    def _distance(self, batch: TrainBatch) -> tuple[float, float, Callable[[], float]]:
        """(mean -log p, KL(policy || what drew the data), KL(policy as it is now || as it is when asked)) a decision.

        On a slice of the rows, a different one each step; the second on all rows where the policy was evaluated anyway. For
        densities (recognised by exceeding 1) surprise has no meaning: inf. Where no decision counts it is nan and the distances are 0.
        """
        count = batch.shape[0]
        every = max(1, min(self.rule.slice, count // FEWEST))
        # In pairs of neighbours: a policy may evaluate the prompt that they share once, and prompts are much of what it costs.
        pair_N = torch.arange(count, device=batch.mask_NS.device) // 2
        rows = batch.select((pair_N % every == self.models.version % every).nonzero()[:, 0])

        def logprob_NS() -> Tensor:
            return self.models.evaluated(rows)["logprob_NS"]

        if has_not_moved(self.models, batch):
            before_NS, known, known_NS = rows.column("proximal_NS", self), batch, batch.column("proximal_NS", self)
        else:
            before_NS = known_NS = logprob_NS()
            known = rows
        drawn_NS = self._drawn(rows, before_NS)
        apart_NS = _apart(known_NS - known.column("behavior_NS", self)) * known.mask_NS

        def distance() -> float:
            apart_NS = ops.k3(before_NS, logprob_NS())
            return float(ops.masked_sum(drawn_NS * apart_NS, rows.mask_NS) / drawn_NS.sum().clamp(min=1e-9))

        surprise = float(ops.masked_sum(drawn_NS * -before_NS, rows.mask_NS) / drawn_NS.sum())
        dense = bool(((before_NS > 1e-3) & rows.mask_NS).any())
        discrepancy = float(apart_NS.sum() / self._drawn(known, known_NS).sum().clamp(min=1e-9))
        return math.inf if dense else surprise, discrepancy, distance

    def _drawn(self, batch: TrainBatch, now_NS: Tensor) -> Tensor:
        """The weight of each decision. Another policy's sample counts as far as the current policy would sample it too; otherwise
        one abandoned decision could make up the whole distance. No weight exceeds 1, so it never depends on a few.
        """
        return (now_NS - batch.column("behavior_NS", self)).clamp(max=0).exp() * batch.mask_NS

    def _taken_back(
        self, old: Weights, attempted: float, target: float, distance: Callable[[], float]
    ) -> tuple[float, float]:
        """(how far the step went in the end, the share of it that was kept)"""
        moved, kept = attempted, 1.0
        for _ in range(self.rule.tries):
            share = self.rule.back(moved, target)
            if share == 1.0:
                return moved, kept
            self._write(old, share)
            moved, kept = (distance(), kept * share) if share else (0.0, 0.0)
        if self.rule.back(moved, target) == 1.0:
            return moved, kept
        self._write(old)
        return 0.0, 0.0

    def _weights(self) -> Weights:
        return {name: w.detach().clone() for name, w in self.models.policy.named_parameters() if w.requires_grad}

    def _others(self) -> dict[str, list[Tensor]]:
        """The weights that a step moves besides the policy's: models with an optimiser, and models that follow another."""
        models = self.models
        moving = {name for name, spec in models.specs.items() if spec.follows or name in models.optimizers} - {POLICY}
        return {name: [w.detach().clone() for w in self._moving(name)] for name in sorted(moving)}

    def _moving(self, name: str) -> list[Tensor]:
        return [w for w in self.models[name].parameters() if w.requires_grad or self.models.specs[name].follows]

    @torch.no_grad()
    def _write_others(self, others: Mapping[str, list[Tensor]]) -> None:
        for name, weights in others.items():
            for own, weight in zip(self._moving(name), weights, strict=True):
                own.copy_(weight)

    @torch.no_grad()
    def _write(self, weights: Weights, share: float = 0.0) -> None:
        """These, and on from them ``share`` of the way to what is there. (0 times what is not finite is not 0.)"""
        own = dict(self.models.policy.named_parameters())
        for name, weight in weights.items():
            own[name].copy_(weight.lerp(own[name], share) if share else weight)

    def state_dict(self) -> dict[str, Any]:
        return {
            "rule": dict(self.state),
            "score": dict(self.score),
            "good": dict(self.good),
            "candidate": dict(self.candidate),
            "undone": self.undone,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._refuse(state)
        self.state, self.score, self.undone = dict(state["rule"]), dict(state["score"]), state["undone"]
        device = self.models.device
        self.good, self.candidate = (
            {name: weight.to(device) for name, weight in state[which].items()} for which in ("good", "candidate")
        )

    def _refuse(self, state: Mapping[str, Any]) -> None:
        """A state that is not of this rule: edited, or saved by another version."""
        score = {} if self.rule.fallback is None else self.rule.fallback.init()
        wanted: Mapping[str, Mapping[str, Any]] = {"rule": self.rule.init(), "score": score}
        lacking = sorted(self.state_dict().keys() - state.keys())
        lacking += [
            f"{part}/{name}" for part in wanted if part in state for name in wanted[part].keys() - state[part].keys()
        ]
        if not lacking and score and state["score"]["good"] >= 0 and not state["good"]:
            lacking = ["good/weights"]
        if lacking:
            raise ValueError(
                f"the checkpoint lacks Stability's state ({lacking[0]} is absent): it is from another recipe or an "
                "earlier version of gimbal; start a new run from its weights, policy.model=.../model"
            )
        for part in wanted:
            for name, value in state[part].items():
                if not math.isfinite(value) or (name == "factor" and value <= 0):
                    raise ValueError(
                        f"the checkpoint's {part}/{name} of Stability is {value}, but must be a finite number (factor: above 0): the "
                        "file is damaged; resume from an earlier checkpoint"
                    )


def _apart(ratio_NS: Tensor) -> Tensor:
    """min(1, r) (1 / r - 1 + log r) of log r: k3 of KL(policy || what drew it), counted as in ``_drawn``, in one piece.

    A decision that the policy takes no more (r = 0) counts 1. The product of the two would be 0 there: k3 is bounded, its weight not.
    """
    left_NS = ratio_NS.clamp(max=0)
    return torch.where(ratio_NS < 0, left_NS * left_NS.exp() - left_NS.expm1(), (-ratio_NS).expm1() + ratio_NS)
