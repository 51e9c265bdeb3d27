"""The steps of a written working become turns."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import torch

from gimbal.dataflow.base import AbstractFilter
from gimbal.records import Drop, Group, Rollout
from gimbal.rewards.working_steps import LINES_AND_CUES, step_spans

UNIT = re.compile(r"(?s)<[^<>\s]+>|.")  # a tag, or a character


@dataclass(frozen=True, kw_only=True)
class StepTurns(AbstractFilter):
    """Sets ``turn_S``: reasoning step k is turn k, and what follows the reasoning is the turn after the last step.

    Steps are those of rewards.WorkingSteps. Rollouts that have turns already, of an environment say, keep them; one without
    working is turn 0 throughout. It drops nothing, and precedes whatever reads turns.

    Exact where a decision is a character or a tag, as for gimbal-tiny; for other tokenizers a boundary is placed by its share of the
    text, and may be off by some tokens.
    """

    separator: str = LINES_AND_CUES
    opening: str = "<think>"
    closing: str = "</think>"

    def __call__(self, group: Group) -> Group | Drop:
        return replace(group, episodes=tuple(episode.map(self._with_turns) for episode in group.episodes))

    def _with_turns(self, rollout: Rollout) -> Rollout:
        spans = step_spans(rollout.text, self.opening, self.closing, self.separator)
        if rollout.turn_S is not None or not spans:
            return rollout
        closed = bool(self.closing) and rollout.text.find(self.closing, spans[-1][0]) >= 0
        starts = [start for start, _ in spans[1:]] + ([spans[-1][1]] if closed else [])
        turn_S = torch.zeros(rollout.length, dtype=torch.long)
        for start in starts:
            turn_S[decision_of(rollout, start) :] += 1
        return replace(rollout, turn_S=turn_S)


def decision_of(rollout: Rollout, character: int) -> int:
    """The decision that drew this character of the text."""
    ends = [match.end() for match in UNIT.finditer(rollout.text)]
    before = sum(end <= character for end in ends)
    exact = rollout.length - len(ends) in (0, 1)  # the end-of-text token has no text
    return before if exact else round(before / max(1, len(ends)) * rollout.length)
