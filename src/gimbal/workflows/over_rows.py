"""Common base of workflows that drive whole groups and delegate each row to another workflow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.engines.base import FORK
from gimbal.policies.paths import PathSampling
from gimbal.records import Task
from gimbal.rewards.base import AbstractReward
from gimbal.workflows.base import AbstractWorkflow
from gimbal.workflows.single import SingleTurn


def evaluated_otherwise(biased: str, whole: Composition) -> Iterator[Verdict]:
    """The refusal of an evaluation by a workflow that draws no samples of the policy; ``biased`` says "Name does this"."""
    if whole.run.held_out is not None and whole.run.held_out.workflow is None:
        yield Refusal(
            f"{biased}, so an evaluation with it would not measure the policy: held_out.workflow='SingleTurn()', or held_out=None"
        )


def goes_by(reward: AbstractReward, name: str, whole: Composition) -> Iterator[Verdict]:
    """The refusal of a workflow that goes by a reward which the run does not have, such as after the run's was replaced."""
    if reward not in whole.run.rewards:
        own = ", ".join(repr(other.name) for other in whole.run.rewards)
        yield Refusal(
            f"{name} goes by {type(reward).__name__} ({reward.name!r}), but this run has {own or 'no rewards'}: give the run's own "
            f"reward to {name} too, as in {name}(reward=file.py:function)"
        )


def scores_itself(name: str, whole: Composition, by: str = "the reward as workflow.reward") -> Iterator[Verdict]:
    """The refusal of rewards of the run where a workflow scores rows as it goes, and they would score the text of the last row."""
    held_out = whole.run.held_out
    ways = ["'rewards=()'"] if whole.run.rewards else []
    ways += ["held_out.rewards=none"] if held_out is not None and held_out.workflow is None and held_out.rewards else []
    if ways:
        yield Refusal(
            f"{name} scores what it draws as it goes, and the run's rewards would score it again, by its last text: give {by}, "
            f"and {' '.join(ways)}"
        )


@dataclass(frozen=True, kw_only=True)
class AbstractOverRows(AbstractWorkflow):
    """Some rows of a group branch off others; ``inside`` drives each from where it begins."""

    biased: ClassVar[str]  # "Name does this": why what it draws is no sample of the policy

    inside: AbstractWorkflow = SingleTurn()

    def __post_init__(self) -> None:
        if self.inside.whole:
            ours, theirs = type(self).__name__, type(self.inside).__name__
            raise ValueError(
                f"{theirs} drives whole groups, and {ours} has it drive single rows: put {ours} into it, or use one of the two"
            )

    @property
    def whole(self) -> bool:
        return True

    @property
    def requires(self) -> frozenset[str]:
        return self.inside.requires | {FORK}

    @property
    def players(self) -> frozenset[str]:
        return self.inside.players

    def accepts(self, task: Task) -> None:
        self.inside.accepts(task)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from evaluated_otherwise(self.biased, whole)
        if isinstance(whole.run.sampling, PathSampling):
            yield Refusal(
                f"{type(self).__name__} splits rows by what was written in them; denoising paths split at fixed steps: "
                "workflow='FixedSplits()'"
            )
