"""Wrong steps stay as context and do not train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch

from gimbal.dataflow.base import AbstractFilter
from gimbal.dataflow.filters.step_turns import decision_of
from gimbal.records import Drop, Episode, Group, Rollout
from gimbal.rewards.working_steps import LINES_AND_CUES, step_verdicts


@dataclass(frozen=True, kw_only=True)
class RightSteps(AbstractFilter):
    """Only right steps train, in any rollout; the others stay as context (step-level filtering, WebSTAR, 2026).

    A step of the reasoning is right as defined by rewards.WorkingSteps: its equations are true and, if ``chained``, it begins with the
    result of the step before. Runs of fewer than ``run`` right steps are masked too (segments, arXiv:2605.11905, our reading). Text
    after the reasoning trains if its last step does, text before its first step if that one does; rollouts without reasoning are
    guesses, and train only with ``guesses``. Success of the rollout does not matter. A rollout with nothing to train on leaves the
    group (``drops/rollouts/RightSteps``), and a group of these is dropped as ``no_right_steps``; ``drops/decisions/RightSteps`` counts
    the masked decisions in rollouts that stay.

    - every step right: the group unchanged.
    - ``run`` = 1: each step separately.

    Confidence: abstract only; the mask on steps is the paper's, whose grades are a judge's; ours: how a step is judged, and the edges.
    Left out: StepRM, a model taught the grades. In a pilot in the terminal it was right on .77 to .79 of fresh steps, taught by a
    grader who is right on .8 (docs/log.md): no better than its grader, who can be asked as well at this size.
    """

    separator: str = LINES_AND_CUES
    opening: str = "<think>"
    closing: str = "</think>"
    chained: bool = False
    run: int = 1
    guesses: bool = False

    def __post_init__(self) -> None:
        if self.run < 1:
            raise ValueError(f"RightSteps.run is {self.run}; it counts right steps in a row, at least 1")

    def __call__(self, group: Group) -> Group | Drop:
        kept = [found for episode in group.episodes if (found := self._episode(episode)) is not None]
        return replace(group, episodes=tuple(kept)) if kept else Drop("no_right_steps")

    def _episode(self, episode: Episode) -> Episode | None:
        """By the row that speaks for it."""
        rows = (*episode.rows[:-1], self._masked(episode.last))
        return replace(episode, rows=rows) if any(bool(row.mask_S.any()) for row in rows) else None

    def _masked(self, row: Rollout) -> Rollout:
        steps = step_verdicts(row.text, self.opening, self.closing, self.separator, chained=self.chained)
        if not steps:
            return row if self.guesses else replace(row, mask_S=torch.zeros_like(row.mask_S))
        keep = self._in_runs([right for _, right in steps])
        # A step reaches to where the next one begins, and the first and the last to the ends of the row.
        starts = [0, *(decision_of(row, start) for (start, _), _ in steps[1:]), row.length]
        keep_S = torch.zeros_like(row.mask_S)
        for place, right in enumerate(keep):
            keep_S[starts[place] : starts[place + 1]] = right
        return row if bool(keep_S.all()) else replace(row, mask_S=row.mask_S & keep_S)

    def _in_runs(self, rights: Sequence[bool]) -> list[bool]:
        kept: list[bool] = []
        for right, run in groupby(rights):
            count = len(list(run))
            kept += [right and count >= self.run] * count
        return kept
