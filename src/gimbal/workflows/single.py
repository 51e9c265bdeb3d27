"""A prompt and one completion."""

from __future__ import annotations

from dataclasses import dataclass

from gimbal.records import Episode
from gimbal.workflows.base import AbstractWorkflow, Attempt, Steps


@dataclass(frozen=True, kw_only=True)
class SingleTurn(AbstractWorkflow):
    """One row per episode, sampled from the prompt. The engine does this by itself."""

    def effects(self) -> frozenset[str]:
        return frozenset()

    def __call__(self, attempt: Attempt) -> Steps:
        row = yield attempt.begin()
        return Episode.of(row)
