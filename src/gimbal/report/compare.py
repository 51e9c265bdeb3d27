"""Arms compared: scores, curves, times to a threshold, each with its interval. docs/compare.md says what each figure means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy import ndarray as Array

from gimbal.config.own import some
from gimbal.report import statistics
from gimbal.report.arms import Arm, EndedRun, differing
from gimbal.report.comparison import ALPHA, ArmResult, Clock, Comparison, Estimate, PairResult
from gimbal.report.figure import figure
from gimbal.report.files import drawn, unit
from gimbal.report.held_out import ranked, smaller
from gimbal.report.record import Record
from gimbal.report.verdict import short, table, verdict

WINDOW = 4  # steps that a training curve is averaged over before it is compared with a threshold
CURVE_POINTS = 60
STRENGTHS = 2000  # resamples of a ranking
# What else determines a training curve besides the policy: if arms differ in it, their curves are not comparable.
TRAINED_ON = ("tasks.", "curriculum.", "sampling.", "rewards.")


def compare(
    found: Sequence[Arm], *, metric: str | None = None, threshold: float | None = None, seed: int = 0
) -> Comparison:
    """Compare every arm and every pair of arms. ``seed`` is for the bootstrap.

    ``metric`` is an evaluation metric (``pass@1``, ``greedy``, ``score``) or one of metrics.jsonl, averaged over
    the last ``WINDOW`` steps. ``threshold`` defaults to the highest level that every run reaches, so that none is censored; a metric
    that is better smaller has none.
    """
    generator = np.random.default_rng(seed)
    asked, metric = metric, _metric(found, metric)
    scores = {arm.name: _scores(arm, metric) for arm in found}
    if len(found[0].runs) > 1 and not all((x >= 0).all() and (x <= 1).all() for x in scores.values()):
        raise ValueError(
            f"{metric} has no common scale over {len(found[0].runs)} kinds of tasks; compare one at a time"
        )
    curves, notes = Curves.of(found, metric), _notes(found)
    if asked is None and metric == "eval/score" and "eval/pass@1" in found[0].all_runs[0].summary.after:
        notes.append(
            "no answer in any evaluation reached a reward of 1, so the mean score is compared instead of pass@1"
        )
    thresholds: list[float] = []
    if smaller(metric):
        if threshold is not None:
            raise ValueError(
                f"a curve rises to its threshold, and {metric} is better the smaller it is: leave out --threshold"
            )
        notes.append(f"{short(metric)} is better the smaller it is")
    elif curves is None:
        notes.append(
            "no time to a threshold: the groups train on different data, so their training curves are not comparable; "
            "train with held_out.every"
        )
    else:
        thresholds = [threshold] * len(found[0].runs) if threshold is not None else curves.common()
        if not thresholds:
            notes.append(
                "no time to a threshold: no level above all starting values was reached by every run; give --threshold"
            )
    clocks = _clocks(found, curves, thresholds) if curves and thresholds else {}
    pairs = list(combinations(found, 2))
    results = [_pair(a.name, b.name, metric, scores, clocks, ALPHA / len(pairs), generator) for a, b in pairs]
    everything = np.concatenate([x.ravel() for x in scores.values()])
    margin = 0.05 * float(np.ptp(everything))
    tau_K = np.linspace(everything.min() - margin, everything.max(), 61)
    unlike, strong = differing(found), _strengths(list(scores.values()), metric, generator)
    comparison = Comparison(
        metric=metric,
        verdict="",
        unit=unit(run.rows[-1] for arm in found for run in arm.all_runs),
        notes=notes,
        curve=curves.name if curves and thresholds else "",
        window=curves.window if curves else WINDOW,
        thresholds=thresholds,
        horizon=[float(x) for x in clocks["tokens"].horizon] if clocks else [],
        arms=[
            ArmResult(
                name=arm.name,
                recipe=arm.all_runs[0].recipe,
                runs=[run.directory.name for run in arm.all_runs],
                steps=arm.all_runs[0].summary.steps,
                settings={key: arm.all_runs[0].settings.get(key) for key in unlike},
                scores=scores[arm.name].T.tolist(),
                score=_estimate(statistics.interquartile_mean, [scores[arm.name]], generator),
                strength=strong[place] if strong else None,
                profile=_profile(scores[arm.name], tau_K, generator),
                curve=curves.band(arm, generator) if curves and len(arm.runs) == 1 else [],
                tokens=_clock(clocks["tokens"], arm.name, generator) if clocks else None,
                seconds=_clock(clocks["seconds"], arm.name, generator) if clocks else None,
            )
            for place, arm in enumerate(found)
        ],
        pairs=results,
    )
    comparison = replace(comparison, verdict=verdict(comparison))
    return replace(comparison, text=table(comparison), svg=figure(comparison))


@dataclass(frozen=True)
class Curves:
    """One metric over the steps of every run, and the window it is averaged over before it is compared with a threshold."""

    name: str
    window: int
    found: Sequence[Arm]

    @classmethod
    def of(cls, found: Sequence[Arm], metric: str) -> Curves | None:
        """The evaluation's curve if all runs have it equally often; else the training curve, if it measures the same thing."""
        runs = [run for arm in found for run in arm.all_runs]
        known = all(metric in run.rows[-1] or metric in run.summary.after for run in runs)
        if runs[0].every and known and all(run.every == runs[0].every for run in runs):
            return cls(metric, 1, found)
        if any(key.startswith(TRAINED_ON) for key in differing(found)):
            return None
        name = "pass_rate" if "pass@" in metric or metric.endswith("greedy") else "reward/mean"
        if smaller(metric):
            name = "loss" if metric == "eval/loss" else metric.replace("eval/", "reward/")
        if metric in runs[0].rows[-1] and not metric.startswith("eval/"):
            name = metric
        return cls(name, WINDOW, found) if all(name in run.rows[-1] for run in runs) else None

    def read(self, run: EndedRun) -> tuple[Array, Array, Array]:
        """(the metric, tokens, seconds of training) at the steps that have the metric, including the evaluation before and after."""
        tokens_K = np.array([drawn(row) for row in run.rows], dtype=float)
        seconds_K = np.cumsum([row["time/step"] for row in run.rows])
        value_K = np.array([_number(row.get(self.name)) for row in run.rows])
        if self.window == 1:
            if math.isnan(value_K[-1]):
                value_K[-1] = run.summary.after[self.name]
            value_K = np.append(run.summary.before.get(self.name, math.nan), value_K)
            tokens_K, seconds_K = np.append(0.0, tokens_K), np.append(0.0, seconds_K)
            kept_K = ~np.isnan(value_K)
            return value_K[kept_K], tokens_K[kept_K], seconds_K[kept_K]
        return value_K, tokens_K, seconds_K

    def smooth(self, run: EndedRun) -> tuple[Array, Array]:
        """(tokens, the metric averaged over the window that ends there)."""
        value_K, tokens_K, _ = self.read(run)
        if len(value_K) < self.window:
            return tokens_K[:0], value_K[:0]
        return tokens_K[self.window - 1 :], np.convolve(value_K, np.full(self.window, 1 / self.window), mode="valid")

    def common(self) -> list[float]:
        """For each evaluation, the highest level that every run reaches and none starts at, rounded down; empty if there is none."""
        levels = []
        for stratum in range(len(self.found[0].runs)):
            curves = [self.smooth(run)[1] for arm in self.found for run in arm.runs[stratum]]
            if any(len(curve) == 0 or np.isnan(curve).all() for curve in curves):
                return []
            start, top = max(float(c[0]) for c in curves), min(float(np.nanmax(c)) for c in curves)
            span = max(float(np.nanmax(c)) for c in curves) - min(float(np.nanmin(c)) for c in curves)
            unit = 10.0 ** math.floor(math.log10(span)) / 10 if span > 0 else 1.0
            level = round(math.floor(top / unit + 1e-9) * unit, 10)
            if not level > start:
                return []
            levels.append(level)
        return levels

    def band(self, arm: Arm, generator: np.random.Generator) -> list[list[float]]:
        """The arm's curve over tokens: interquartile mean over its runs, with the bootstrap's band."""
        drawn = [self.smooth(run) for run in arm.runs[0]]
        if any(len(tokens_K) == 0 for tokens_K, _ in drawn):
            return []
        first, last = max(float(t[0]) for t, _ in drawn), min(float(t[-1]) for t, _ in drawn)
        grid_K = np.linspace(first, last, CURVE_POINTS)
        value_RK = np.stack([np.interp(grid_K, tokens_K, value_K) for tokens_K, value_K in drawn])
        rows = []
        for place, values in zip(grid_K.tolist(), value_RK.T, strict=True):
            estimate = _estimate(statistics.interquartile_mean, [values[:, None]], generator, count=1000)
            rows.append(_row(place, estimate))
        return rows


@dataclass(frozen=True)
class Times:
    """For each arm the times [runs, evaluations] to the threshold and how many runs arrived; for each evaluation the horizon."""

    of: dict[str, Array]
    reached: dict[str, int]
    horizon: list[float]


def _clocks(found: Sequence[Arm], curves: Curves, thresholds: Sequence[float]) -> dict[str, Times]:
    clocks = {}
    for column, name in ((1, "tokens"), (2, "seconds")):
        of: dict[str, list[Array]] = {arm.name: [] for arm in found}
        reached = dict.fromkeys(of, 0)
        horizons = []
        for stratum, threshold in enumerate(thresholds):
            runs = [(arm.name, curves.read(run)) for arm in found for run in arm.runs[stratum]]
            raw = [statistics.time_to(read[0], read[column], threshold, curves.window) for _, read in runs]
            times, horizon = statistics.censored(raw, [float(read[column][-1]) for _, read in runs])
            horizons.append(horizon)
            for arm in found:
                own = [place for place, (owner, _) in enumerate(runs) if owner == arm.name]
                of[arm.name].append(np.array([times[place] for place in own]))
                reached[arm.name] += sum(math.isfinite(raw[place]) for place in own)
        clocks[name] = Times({arm: np.stack(columns, axis=1) for arm, columns in of.items()}, reached, horizons)
    return clocks


def _clock(times: Times, arm: str, generator: np.random.Generator) -> Clock:
    time_RT = times.of[arm]
    return Clock(
        times=time_RT.T.tolist(),
        reached=times.reached[arm],
        mean=_estimate(statistics.interquartile_mean, [time_RT], generator),
    )


def _pair(
    a: str,
    b: str,
    metric: str,
    scores: dict[str, Array],
    clocks: dict[str, Times],
    alpha: float,
    generator: np.random.Generator,
) -> PairResult:
    def gap(x: Array, y: Array) -> Array:
        return np.asarray(statistics.interquartile_mean(x) - statistics.interquartile_mean(y))

    def ratio(clock: str) -> Estimate | None:
        arms = [clocks[clock].of[a], clocks[clock].of[b]] if clocks else []
        value = float(statistics.time_ratio(*arms)) if arms else math.nan
        return None if math.isnan(value) else _estimate(statistics.time_ratio, arms, generator)

    p = statistics.permutation_p(scores[a], scores[b], generator)
    tokens_p = statistics.permutation_p(clocks["tokens"].of[a], clocks["tokens"].of[b], generator) if clocks else 1.0
    return PairResult(
        a=a,
        b=b,
        difference=_estimate(gap, [scores[a], scores[b]], generator),
        improvement=_estimate(
            statistics.improvement, [scores[b], scores[a]] if smaller(metric) else [scores[a], scores[b]], generator
        ),
        p=p,
        differ=p <= alpha,
        tokens=ratio("tokens"),
        tokens_p=tokens_p,
        tokens_differ=tokens_p <= alpha,
        seconds=ratio("seconds"),
    )


def _estimate(
    statistic: Callable[..., Array],
    arms: Sequence[Array],
    generator: np.random.Generator,
    count: int = statistics.RESAMPLES,
) -> Estimate:
    ends = statistics.interval(statistic, arms, generator, count=count)
    return Estimate(float(statistic(*arms)), *(ends or (None, None)))


def _strengths(arms: Sequence[Array], metric: str, generator: np.random.Generator) -> list[Estimate]:
    """One ranking of three or more arms by their runs' wins over each other; [] of fewer, where P(improvement) says it all."""
    if len(arms) < 3:
        return []
    better = [-score_RT if smaller(metric) else score_RT for score_RT in arms]
    values = statistics.strengths(statistics.wins(better)).tolist()
    if min(map(len, arms)) < 2:
        return [Estimate(value) for value in values]
    drawn_BA = statistics.strengths(
        statistics.wins([statistics.resample(score_RT, STRENGTHS, generator) for score_RT in better])
    )
    return [
        Estimate(*each) for each in zip(values, *(x.tolist() for x in statistics.percentiles(drawn_BA)), strict=True)
    ]


def _profile(score_RT: Array, tau_K: Array, generator: np.random.Generator) -> list[list[float]]:
    share_K = statistics.profile(score_RT, tau_K)
    if len(score_RT) < 2:
        return [[float(tau), float(share), math.nan, math.nan] for tau, share in zip(tau_K, share_K, strict=True)]
    low_K, high_K = statistics.percentiles(statistics.profile(statistics.resample(score_RT, 2000, generator), tau_K))
    return [[float(x) for x in row] for row in zip(tau_K, share_K, low_K, high_K, strict=True)]


def _row(place: float, estimate: Estimate) -> list[float]:
    ends = (estimate.low, estimate.high)
    return [place, estimate.value, *(math.nan if end is None else end for end in ends)]


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _metric(found: Sequence[Arm], asked: str | None) -> str:
    """The full name of the requested metric, or of the one that shows best what was learned."""
    runs = [run for arm in found for run in arm.all_runs]
    evaluations = [source for run in runs for source in (run.summary.before, run.summary.after)]
    names = ranked(*evaluations) if asked is None else (f"eval/{asked}",)
    return next((name for name in names if name in runs[0].summary.after), asked or "reward/mean")


def _scores(arm: Arm, metric: str) -> Array:
    """[runs, evaluations]."""
    return np.array([[_score(run, metric) for run in runs] for runs in arm.runs], dtype=float).T


def _score(run: EndedRun, metric: str) -> float:
    if metric in run.summary.after:
        return float(run.summary.after[metric])
    if metric.startswith("eval/") and "eval/failed" in run.summary.after:
        count = run.summary.after["eval/failed"]
        raise ValueError(
            f"{run.directory} has no {metric}: {count:.0f} of its last held-out rollouts failed; gimbal eval {run.directory} says why"
        )
    newest = [row[metric] for row in run.rows[-WINDOW:] if row.get(metric) is not None]
    if not newest:
        known = ", ".join(sorted(run.summary.after)) or "reward/mean"
        raise ValueError(f"{run.directory} has no metric {metric}; it has {known} and the metrics of its steps")
    return float(np.mean(newest))


def _notes(found: Sequence[Arm]) -> list[str]:
    """What a reader must know in addition to the figures."""
    notes = []
    steps = {arm.name: sorted({run.summary.steps for run in arm.all_runs}) for arm in found}
    if len({tuple(counts) for counts in steps.values()}) > 1:
        notes.append("steps differ: " + ", ".join(f"{name} {counts[-1]}" for name, counts in steps.items()))
    own = [key for key in differing(found) if key.startswith(("sampling.", "engine.", "held_out.engine"))]
    own = [key for key in own if key.rpartition(".")[2] not in ("slots", "apart", "deadline")]  # how fast, not what
    if any(key.startswith("held_out.engine") for key in own):  # what trains is another
        own = [key for key in own if not key.startswith("engine.")]
    if own and "held_out" not in found[0].all_runs[0].settings:
        notes.append(f"the groups sampled their evaluations differently ({some(own)})")
    fallen = [run.directory for arm in found for run in arm.all_runs if Record(run.directory).fallen]
    if fallen:
        notes.append(
            f"evaluation or score fell in {len(fallen)} of {sum(len(arm.all_runs) for arm in found)} runs; to find out why: "
            f"gimbal doctor {fallen[0]}"
        )
    if any(len(runs) == 1 for arm in found for runs in arm.runs):
        notes.append(
            "a group of one run has no interval, so an effect cannot be distinguished from chance (gimbal train RECIPE --seeds 5)"
        )
    return notes
