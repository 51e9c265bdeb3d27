"""What a denoising policy is asked for: a class, or a sample of any."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gimbal.environments.base import AbstractGenerated
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class Conditions(AbstractGenerated):
    """Classes that an image is asked for.

    ``size`` tasks that ask for a sample of the classes of ``labels`` in turn, or of no class in particular where there are none.

    Samples of a task begin at noise of their own; ``seed`` tells the tasks of a training set from those of an evaluation, which ask
    the same but begin elsewhere. Rewards find the class in the column ``label``.
    """

    labels: tuple[int, ...] = ()
    size: int = 100_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"Conditions.size is {self.size}; it must be at least 1")
        if any(label < 0 for label in self.labels):
            raise ValueError(f"Conditions.labels is {self.labels}; classes are numbered from 0")

    def task(self, index: int) -> Task:
        label = self.labels[index % len(self.labels)] if self.labels else None
        return Task(
            id=f"condition-{self.seed}-{index}",
            prompt="any" if label is None else f"class {label}",
            source="conditions",
            columns={} if label is None else {"label": label},
        )


def listed(labels: Iterable[int]) -> str:
    """Classes as they are typed."""
    return f"[{','.join(map(str, sorted(labels)))}]"
