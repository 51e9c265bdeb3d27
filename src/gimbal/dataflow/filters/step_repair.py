"""Completes mostly correct failures with a guide's steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from gimbal.composition import GUIDES, Composition, Refusal, Verdict
from gimbal.dataflow.base import AbstractFilter
from gimbal.dataflow.filters.step_turns import decision_of
from gimbal.policies.token import Tokens
from gimbal.records import Drop, Group, Rollout
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.working_steps import WorkingSteps, step_spans

GUIDED = "guided"


@dataclass(frozen=True, kw_only=True)
class StepRepair(AbstractFilter):
    """Keeps the correct first steps of a wrong rollout and continues with the guide's from the first error (SCOPE, arXiv:2602.24110).

    The first ``guides`` samples of a task with a column ``completion`` are the guide's (workflows.Guided); they leave the group. Among
    wrong rollouts (below ``threshold``) with at least ``least`` leading right steps, the ``repairs`` with the largest share of right
    steps are repaired, if the guide is right and ``right`` finds no error in the result. ``right`` counts the leading right steps of a
    text. A repaired rollout has the guide's scores, and its score ``guided`` says how many of its last decisions are the guide's (0 for
    all others), which GuidedRatio reads. It precedes filters.StepTurns.

    - ``repairs`` = 0, or nothing to repair: the group without its guides.
    - ``least`` = 0 and every first step wrong: whole rollouts are replaced by the guide's, as in LUFFY (arXiv:2504.14945).

    Confidence: partial; that the prefix before the first error is kept is read; ours: how many are repaired, and by what guide.
    """

    right: AbstractReward = WorkingSteps(measure="right", separator=" ", chained=True)
    guides: int = 1
    repairs: int = 1
    least: int = 1
    threshold: float = 1.0
    separator: str = " "
    opening: str = "<think>"
    closing: str = "</think>"

    def __post_init__(self) -> None:
        if min(self.guides, self.repairs, self.least) < 0:
            raise ValueError("StepRepair counts guides, repairs and the least right steps, each 0 or above")

    def __call__(self, group: Group) -> Group | Drop:
        guides = self.guides if "completion" in group.task.columns else 0
        own = [_guided(rollout, 0) for rollout in group.rollouts if rollout.sample >= guides]
        right = [r for r in group.rollouts if r.sample < guides and r.earned >= self.threshold]
        if not own:
            return Drop("only_guides")
        for place in self._worth_repair(group, own)[: self.repairs] if right else []:
            repaired = self._repaired(own[place], right[0], self._right_steps(group, own[place]))
            if self._right_steps(group, repaired) == len(self._spans(repaired)):
                own[place] = repaired
        return group.keep(own)

    def _worth_repair(self, group: Group, own: list[Rollout]) -> list[int]:
        """Places of wrong rollouts with enough right steps, the largest share of right steps first."""
        shares: dict[int, float] = {}
        for place, rollout in enumerate(own):
            right = self._right_steps(group, rollout)
            if rollout.earned < self.threshold and right >= self.least:
                shares[place] = right / max(1, len(self._spans(rollout)))
        return sorted(shares, key=lambda place: -shares[place])

    def _repaired(self, rollout: Rollout, guide: Rollout, steps: int) -> Rollout:
        own, taken = self._cut(rollout, steps), self._cut(guide, steps)
        kept, joined = decision_of(rollout, own), decision_of(guide, taken)
        first, second = _ids(rollout), _ids(guide)
        assert isinstance(rollout.decisions, Tokens), "steps are written in tokens"
        prompt = rollout.decisions.ids_NL[0, : int(rollout.decisions.prompt_N[0])].tolist()
        columns = ("behavior_S", "version_S", "mask_S", "reward_S")
        spliced: dict[str, Any] = {
            key: torch.cat([getattr(rollout, key)[:kept], getattr(guide, key)[joined:]]) for key in columns
        }
        whole = replace(
            rollout,
            decisions=Tokens.row(prompt, [*first[:kept], *second[joined:]]),
            **spliced,
            entropy_S=None,
            part_S=None,
            turn_S=None,
            text=rollout.text[:own] + guide.text[taken:],
            stop=guide.stop,
            score=guide.score,
            scores=guide.scores,
        )
        return _guided(whole, len(second) - joined)

    def _cut(self, rollout: Rollout, steps: int) -> int:
        """The character at which step number ``steps``, from 0, begins, or the working's end; no step kept is the whole text."""
        spans = self._spans(rollout)
        if steps == 0 or not spans:
            return 0
        return spans[steps][0] if steps < len(spans) else spans[-1][1]

    def _right_steps(self, group: Group, rollout: Rollout) -> int:
        (value,) = self.right(group.keep((rollout,)))
        return int(value or 0)

    def _spans(self, rollout: Rollout) -> list[tuple[int, int]]:
        return step_spans(rollout.text, self.opening, self.closing, self.separator)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.doing(GUIDES):
            yield Refusal("StepRepair takes the first rollouts of a group for a guide's: use workflow=Guided()")


def _guided(rollout: Rollout, decisions: int) -> Rollout:
    return replace(rollout, scores={**rollout.scores, GUIDED: float(decisions)})


def _ids(rollout: Rollout) -> list[int]:
    assert isinstance(rollout.decisions, Tokens), "steps are written in tokens"
    return rollout.decisions.ids_NL[0, int(rollout.decisions.prompt_N[0]) : int(rollout.decisions.length_N[0])].tolist()
