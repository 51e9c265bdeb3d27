"""Whether a judge is right, and whether it knows where the error is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gimbal.records import Group
from gimbal.rewards.answers import extract
from gimbal.rewards.base import AbstractReward

SPAN = re.compile(r"(\d{1,18})\s*-\s*(\d{1,18})")  # Python refuses to read 4,301 digits, and a model can write them


@dataclass(frozen=True, kw_only=True)
class VerdictAndPlace(AbstractReward):
    """Trains a verifier to judge, and to locate the error, each on its own data (OmniVerifier-M1, arXiv:2605.28805).

    The answer is ``word`` (nothing is wrong) or an interval "a-b". With the true interval in the task's column ``column`` (None:
    nothing is wrong):
    - "verdict": 1 if both hold an interval or neither does.
    - "place": the intersection of the two intervals over their union, in whole steps; 0 without one.
    - "joint": verdict x (1 where nothing is wrong, else place): only the share p of samples with right verdicts can teach the place,
      so its gradient has variance p Var + p (1 - p) |mean|^2 and a signal-to-noise ratio of at most p times that of "place" alone.

    Decoupled: a task with ``columns["stream"]`` is scored only by the measure of that name (Proofreading(copies=True)), so each group
    and its statistics belong to one stream. "joint" scores all.

    - a verifier whose verdicts are all right: "joint" is "place" on tasks with errors.
    - no data with errors: trains only the verdict.

    Published: ``word`` and interval are a verdict and a box; a format reward is added (here: rewards.Pattern).

    Confidence: verified.
    """

    measure: Literal["verdict", "place", "joint"] = "joint"
    column: str = "span"
    word: str = "right"
    opening: str = "<answer>"
    closing: str = "</answer>"
    name: str = ""  # "": the measure

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.measure)

    def __call__(self, group: Group) -> list[float | None]:
        columns = group.task.columns
        if self.column not in columns or (
            self.measure != "joint" and columns.get("stream", self.measure) != self.measure
        ):
            return [None] * len(group.rollouts)
        return [self._score(rollout.text, columns[self.column]) for rollout in group.rollouts]

    def _score(self, text: str, true: Sequence[int] | None) -> float:
        said = extract(text, self.opening, self.closing)
        found = SPAN.fullmatch(said or "")
        if found is None:  # "nothing is wrong", or no answer at all
            return float(said == self.word and true is None and self.measure != "place")
        if true is None or self.measure == "verdict":
            return float(true is not None)
        return overlap((int(found[1]), int(found[2])), (true[0], true[1]))


def overlap(a: tuple[int, int], b: tuple[int, int]) -> float:
    """Intersection over union of two closed intervals of integers; 0 for one that ends before it begins."""
    if a[1] < a[0] or b[1] < b[0]:
        return 0.0
    shared = max(0, min(a[1], b[1]) - max(a[0], b[0]) + 1)
    return shared / (a[1] - a[0] + b[1] - b[0] + 2 - shared)
