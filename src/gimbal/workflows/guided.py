"""A guide in every group: some samples are demonstrations, the others the policy's own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gimbal.composition import GUIDES, Advice, Composition, Verdict
from gimbal.dataflow.filters.step_repair import StepRepair
from gimbal.records import Task
from gimbal.workflows.base import AbstractWorkflow, Attempt, Steps
from gimbal.workflows.demonstrated import Demonstrated
from gimbal.workflows.single import SingleTurn

COLUMN = "completion"  # of what a guide writes


@dataclass(frozen=True, kw_only=True)
class Guided(AbstractWorkflow):
    """Takes the first ``guides`` samples of a task from its column ``completion``; ``others`` drives the rest.

    Tasks without that column, such as evaluation tasks, are all sampled. filters.StepRepair uses the guides.
    """

    guides: int = 1
    others: AbstractWorkflow = SingleTurn()

    def __post_init__(self) -> None:
        if self.guides < 0:
            raise ValueError(f"Guided.guides is {self.guides}; it must be a number of samples of a group, 0 or above")
        if self.others.whole:
            raise ValueError(
                f"{type(self.others).__name__} drives whole groups, but Guided replaces samples in them: use one of the two"
            )

    @property
    def requires(self) -> frozenset[str]:
        return self.others.requires

    @property
    def players(self) -> frozenset[str]:
        return self.others.players

    def accepts(self, task: Task) -> None:
        self.others.accepts(task)

    def copies(self, task: Task) -> Sequence[Any]:
        return Demonstrated().copies(task) if self.guides else ()

    def columns(self) -> frozenset[str]:
        return frozenset({COLUMN} if self.guides else ())

    def effects(self) -> frozenset[str]:
        return super().effects() | {GUIDES}

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if any(repair.guides != self.guides for repair in whole.all(StepRepair)):
            yield Advice("StepRepair.guides and Guided.guides differ")
        loop = whole.run.learns.stability
        if self.guides and loop is not None and loop.region.discrepancy < math.inf:
            yield Advice(
                "guides are far from the policy by design, which slows the closed loop to its least rate: "
                "stability.region.discrepancy=inf"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        guided = attempt.sample < self.guides and COLUMN in attempt.task.columns
        return (yield from (Demonstrated() if guided else self.others)(attempt))
