"""Separates the decision how to answer from the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from gimbal.composition import MARKS_CONTROL
from gimbal.dataflow.base import AbstractFilter
from gimbal.records import Drop, Group, Part, Rollout


@dataclass(frozen=True, kw_only=True)
class ControlPrefix(AbstractFilter):
    """Sets ``part_S``: the first ``decisions`` that the policy sampled are CONTROL, the others RESPONSE (Thinkless, arXiv:2505.13379).

    gimbal-tiny chooses by its first decision, ``<think>`` or ``<answer>``, whether it works before it answers. Rollouts that
    already have parts, such as an environment's, keep them. It drops nothing, and must come before methods that weight parts, such as
    PartMean.

    - ``decisions`` = 0: all RESPONSE.
    """

    decisions: int = 1

    def __post_init__(self) -> None:
        if self.decisions < 0:
            raise ValueError(
                f"ControlPrefix.decisions is {self.decisions}; it must be a number of decisions, 0 or above"
            )

    def __call__(self, group: Group) -> Group | Drop:
        return replace(group, episodes=tuple(episode.map(self._with_parts) for episode in group.episodes))

    def _with_parts(self, rollout: Rollout) -> Rollout:
        if rollout.part_S is not None:
            return rollout
        control_S = rollout.mask_S & (rollout.mask_S.cumsum(0) <= self.decisions)
        return replace(rollout, part_S=torch.where(control_S, Part.CONTROL, Part.RESPONSE))

    def effects(self) -> frozenset[str]:
        return frozenset({MARKS_CONTROL})
