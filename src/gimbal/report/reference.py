"""Reference curves: the range of the main recipes over seeds at each step, and a message when a run leaves that band.

``benchmarks/reference.py`` makes reference.json from real runs. A band applies only to the recipe it was measured on, with every
field the same except those that change no curve (``NEUTRAL``); other runs are not watched. Faults are neutral on purpose.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from gimbal.config import plain

FILE = Path(__file__).parent / "reference.json"
NEUTRAL = (
    "seed",
    "steps",
    "threads",
    "held_out",
    "checkpoint_every",
    "keep_checkpoints",
    "keep_every",
    "record_every",
    "runtime",
    "sync",
    "faults",
)
UNFELT = ("microbatch_tokens", "checkpointing")  # optimisation fields that do not change gradients
# Watched metrics, and whether their spread is a factor (logarithms) or a difference.
WATCHED = {
    "reward/mean": False,
    "pass_rate": False,
    "length/mean": False,
    "entropy/sampled": False,
    "mismatch/prob_diff": True,
    "grad_norm": True,
}
# Half-width of a band in deviations between seeds, and steps in a row beyond it before a message: a single step
# strays by chance (one in 16,000 if deviations are normal; more often, since they are not, and a run has 240 checks).
WIDTH, IN_A_ROW = 4.0, 2
POOLED = 5  # steps on either side for estimating a deviation: few seeds say little, and it changes over a run


@dataclass
class Watch:
    """Receives each step's metrics and reports which left their band. Without a band it is silent."""

    band: Mapping[str, Any] | None = None
    beyond: Counter[str] = field(default_factory=Counter)  # steps in a row, by metric

    def __call__(self, step: int, metrics: Mapping[str, float]) -> list[str]:
        said = []
        for name, band in (self.band or {"metrics": {}})["metrics"].items():
            if step > len(band["low"]) or name not in metrics:
                continue
            low, high, value = band["low"][step - 1], band["high"][step - 1], metrics[name]
            self.beyond[name] = 0 if low <= value <= high else self.beyond[name] + 1
            if self.beyond[name] == IN_A_ROW:
                assert self.band is not None
                said.append(
                    f"step {step}: {name} {value:.4g} is outside {low:.4g} to {high:.4g}, the range of {self.band['seeds']} healthy "
                    f"runs of {self.band['recipe']}; run gimbal doctor"
                )
        return said


def watch(run: Any) -> Watch:
    """The watch for this run: with the band measured on exactly its recipe, or a silent one."""
    return Watch(band=next((band for band in _bands() if _same(band["run"], plain(run))), None))


def banded(runs: Sequence[Sequence[Mapping[str, float]]]) -> dict[str, dict[str, list[float]]]:
    """The bands from at least two runs of one recipe (metrics of each step): the mean over seeds, smoothed over three steps, plus and
    minus WIDTH standard deviations of one more run, pooled over nearby steps."""
    bands: dict[str, dict[str, list[float]]] = {}
    steps = min(len(rows) for rows in runs)
    for name, factor in WATCHED.items():
        values = [[row.get(name) for row in rows[:steps]] for rows in runs]
        if any(x is None or (factor and x <= 0) for column in values for x in column):
            continue
        curves = [[math.log(x) if factor else x for x in column if x is not None] for column in values]
        mean = [statistics.fmean(at) for at in zip(*curves, strict=True)]
        # The first step is separate: its data is never stale.
        smooth = [mean[0], *(statistics.fmean(mean[max(1, i - 1) : i + 2]) for i in range(1, steps))]
        square = [statistics.fmean((curve[i] - smooth[i]) ** 2 for curve in curves) for i in range(steps)]
        lines: dict[str, list[float]] = {"low": [], "high": []}
        for i, middle in enumerate(smooth):
            # Unbiased: the mean used one degree of freedom per step. The second factor is for one more run.
            pooled = statistics.fmean(square[max(0, i - POOLED) : i + POOLED + 1]) * len(runs) / (len(runs) - 1)
            reach = WIDTH * math.sqrt(pooled * (1 + 1 / len(runs)))
            for key, x in (("low", middle - reach), ("high", middle + reach)):
                lines[key].append(_rounded(math.exp(x) if factor else x))
        bands[name] = lines
    return bands


def measured(run: Any) -> dict[str, Any]:
    """The recipe in the form that bands are measured on."""
    return {name: value for name, value in plain(run).items() if name not in NEUTRAL}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _same(ours: Any, theirs: Any) -> bool:
    """Whether every field known when the band was measured has the same value; newer fields are ignored."""
    if isinstance(ours, Mapping):
        return isinstance(theirs, Mapping) and all(
            name in UNFELT or (name in theirs and _same(x, theirs[name])) for name, x in ours.items()
        )
    if isinstance(ours, list):
        return isinstance(theirs, list) and len(ours) == len(theirs) and all(map(_same, ours, theirs))
    return ours == theirs


@cache
def _bands() -> list[dict[str, Any]]:
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else []
