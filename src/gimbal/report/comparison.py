"""What a comparison of runs found, as data."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gimbal import durable
from gimbal.report import statistics
from gimbal.report.files import DRAWN, finite

ALPHA = 0.05  # for all pairs together (Bonferroni)


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval; without one if an arm has a single run."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Clock:
    """When an arm's runs reached the threshold, and how many did.

    ``times`` [evaluation][seed] are infinite for a censored run: it did not arrive, or only after the horizon.
    """

    times: list[list[float]]
    reached: int
    mean: Estimate  # interquartile, infinite if more than a quarter of the runs are censored


@dataclass(frozen=True, kw_only=True)
class ArmResult:
    name: str
    recipe: str
    runs: list[str]
    steps: int
    settings: dict[str, Any]  # the fields in which the arms differ
    scores: list[list[float]]  # [evaluation][seed]
    score: Estimate  # interquartile mean
    strength: Estimate | None  # Bradley-Terry, in log-odds above the mean arm; None of fewer than three
    profile: list[list[float]]  # rows of (threshold, share of runs above it, low, high)
    curve: list[list[float]]  # rows of (tokens, interquartile mean of the curve, low, high); for one evaluation only
    tokens: Clock | None
    seconds: Clock | None


@dataclass(frozen=True, kw_only=True)
class PairResult:
    """``a`` against ``b``. ``p``: exact permutation tests; ``differ`` where it is at most 0.05 over the number of pairs."""

    a: str
    b: str
    difference: Estimate  # between the interquartile means, a - b
    improvement: Estimate  # probability that a run of a is better than one of b
    p: float
    differ: bool
    tokens: Estimate | None  # a's interquartile mean time to the threshold over b's
    tokens_p: float
    tokens_differ: bool
    seconds: Estimate | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What ``gimbal compare`` found. ``print`` it for the table; ``save`` and ``draw`` write JSON and an SVG figure."""

    metric: str
    verdict: str
    notes: list[str]
    curve: str  # the training metric that the threshold applies to; empty without a threshold
    window: int
    thresholds: list[float]  # per evaluation; empty without a threshold
    horizon: list[float]  # tokens beyond which runs cannot be distinguished, per evaluation; infinite if all arrived
    arms: list[ArmResult]
    pairs: list[PairResult]
    unit: str = DRAWN[0]  # what ``tokens`` counts: tokens, env steps or denoising steps
    level: float = 0.95
    resamples: int = statistics.RESAMPLES
    method: str = "percentile stratified bootstrap over seeds (arXiv:2108.13264); permutation test of the ranks"

    text: str = field(default="", repr=False)  # the table
    svg: str = field(default="", repr=False)  # the figure

    def __str__(self) -> str:
        return self.text

    def save(self, path: str | Path) -> None:
        """JSON, with null for infinite values and NaN."""
        found = {name: value for name, value in asdict(self).items() if name not in ("text", "svg")}
        text = json.dumps(finite(found), indent=1, allow_nan=False) + "\n"
        with durable.named(Path(path)):
            Path(path).write_text(text, encoding="utf-8")

    def draw(self, path: str | Path) -> None:
        with durable.named(Path(path)):
            Path(path).write_text(self.svg, encoding="utf-8")
