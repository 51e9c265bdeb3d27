"""Rewards criteria, and judgements by them, for how they rank two responses."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

from gimbal.records import Group, Rollout
from gimbal.rewards.answers import extract
from gimbal.rewards.base import AbstractReward

CONDITION = {"better": 1.0, "worse": 2.0}  # 0: criteria


@dataclass(frozen=True, kw_only=True)
class CriteriaJudge(AbstractReward):
    """Trains both stages of workflows.CriteriaFirst from preferences between two responses (CE-RM, arXiv:2601.20327).

    A judgement's score is the number between ``opening`` and ``closing``. ``measure``:
    - "order": for a judgement of the better response the share of the judgements of the worse one, by the same criteria, that have a
      lower score; for one of the worse response the share of the better one's that have a higher score; for criteria the share of all
      pairs of judgements by them in which the better response scores higher.
    - "condition": 0 for criteria, 1 and 2 for judgements of the better and of the worse response. With weight 0, it is the stratum in
      which each is compared: Stratified(strata="score/condition", alpha=1.0).

    A judgement without a score earns 0 and is not compared; equal scores give no order. Criteria without judgements earn 0.

    - one list of criteria: trains a pointwise judge.

    Confidence: partial; ours: the formulas of the rewards, and that each of four criteria has two judgements a side.
    """

    measure: Literal["order", "condition"] = "order"
    opening: str = "<answer>"
    closing: str = "</answer>"
    name: str = ""  # "": the measure

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.measure)

    def __call__(self, group: Group) -> list[float | None]:
        if self.measure == "condition":
            return [CONDITION.get(str(r.task.columns.get("side")), 0.0) for r in group.rollouts]
        scores: dict[tuple[int, str], list[float | None]] = defaultdict(list)
        for rollout in group.rollouts:
            if "side" in rollout.task.columns:
                scores[_judged(rollout)].append(self._number(rollout.text))
        return [self._paid(rollout, scores) for rollout in group.rollouts]

    def _paid(self, rollout: Rollout, scores: dict[tuple[int, str], list[float | None]]) -> float:
        if "side" not in rollout.task.columns:
            better, worse = (scores.get((rollout.sample, side), []) for side in CONDITION)
            pairs = [(a, b) for a in better for b in worse]
            return sum(a is not None and b is not None and a > b for a, b in pairs) / max(1, len(pairs))
        own, (number, side) = self._number(rollout.text), _judged(rollout)
        sign, opposite = (1, "worse") if side == "better" else (-1, "better")
        others = [other for other in scores.get((number, opposite), []) if other is not None]
        if own is None or not others:
            return 0.0
        return sum(sign * (own - other) > 0 for other in others) / len(others)

    def _number(self, text: str) -> float | None:
        try:
            value = float(extract(text, self.opening, self.closing) or "")
        except ValueError:
            return None
        return value if math.isfinite(value) else None


def _judged(rollout: Rollout) -> tuple[int, str]:
    """Its criteria, and the side whose response it judges."""
    return int(rollout.task.columns["criterion"]), str(rollout.task.columns["side"])
