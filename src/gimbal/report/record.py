"""A run read from its files, and which changes in its curves exceed noise: the basis of doctor and report."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from gimbal.config import RECIPE_FILE, read_file, run_of
from gimbal.report.files import METRICS, STOPPED, SUMMARY, JsonLines, Summary, read_stopped
from gimbal.report.held_out import LOSS, SUCCESS, measures, ranked, smaller

# Families for rules: text policies, those that make samples (by denoising, or by filling in cells), and those that act.
TOKENS, CONTROL, SAMPLES = "tokens", "env_steps", "samples"
FAMILIES = (TOKENS, CONTROL, SAMPLES, None)
SOLVED = 0.95  # above it, scores are equal and gradients small because the tasks are solved
# Standard errors that make a change real: for the evaluation, and for a curve, whose error is itself estimated from a dozen steps.
# The best of several evaluations or windows is high by chance: the limit grows with their number (``_limit``).
EVALUATION, CURVE = 3.0, 4.0
WORTH = 0.05  # a change of a pass rate worth reporting; for a return, as a share of its size
NEAR = 3  # steps around an evaluation whose spread of returns represents its own
LOST = 0.5  # share of a score's gain whose loss counts as a fall
# Steps above which an experiment is shorter than the run; shorter runs show their outcome only at the end.
LONG_RUN = 200
ERROR = "_error"  # behind a figure's name: the evaluation's own standard error of it
TASKS = "eval/tasks"  # how many it asked; older runs did not say
RETURN = "reward/return/mean"  # of the episodes that ended in a step, where a rollout is a segment of one
TREND = 8  # least steps for a run to have a beginning and an end, a quarter each


@dataclass(frozen=True, kw_only=True)
class Sign:
    """One sign in a run: its name, the figures, and a command to test it."""

    name: str
    evidence: str
    experiment: str


@dataclass(frozen=True, kw_only=True)
class Point:
    """A figure and its time: an evaluation after ``step`` steps (0: before the first), or the mean of a window ending there."""

    step: int
    value: float


@dataclass(frozen=True, kw_only=True)
class Change:
    """From one point of a curve to a later one, with the standard error of the difference, or None if unknown."""

    name: str
    start: Point
    end: Point
    error: float | None
    limit: float  # standard errors that exclude chance

    @property
    def by(self) -> float:
        return self.end.value - self.start.value

    @property
    def gain(self) -> float:
        """The same, above 0 for better."""
        return -self.by if smaller(self.name) else self.by

    @property
    def matters(self) -> bool:
        """Whether it is large enough to report; for an evaluation, everything beyond chance is, but for a loss, which many rows know
        to a hundredth."""
        if self.name.startswith("eval/") and self.error is not None and self.name not in LOSS:
            return True
        shares = min(self.start.value, self.end.value) >= 0 and max(self.start.value, self.end.value) <= 1
        return abs(self.by) >= WORTH * (1.0 if shares else max(abs(self.start.value), abs(self.end.value)))

    @property
    def fell(self) -> bool:
        """Got worse beyond chance. A figure with unknown noise counts if it at least halves (doubles, where smaller is better)."""
        if self.error is None:
            return self.matters and -self.gain >= 0.5 * max(abs(self.start.value), abs(self.end.value))
        return self.matters and -self.gain > self.limit * self.error

    @property
    def rose(self) -> bool:
        """Got better, probably: half of the limit is enough, because this only silences a rule."""
        return self.gain > 0 and (self.error is None or self.gain > self.limit / 2 * self.error)

    @property
    def sank(self) -> bool:
        """Got worse, perhaps: too little to call a fall, too much to call it fine."""
        return self.gain < 0 and (self.error is None or -self.gain > self.limit / 2 * self.error)

    @property
    def surely_rose(self) -> bool:
        return self.rose and (self.error is None or self.gain > self.limit * self.error)

    @property
    def of_best(self) -> str:
        """A change that begins at the best of what came before, in words: the end may be better still."""
        return f"to its best, at the end: {self}" if self.gain > 0 else f"from its best to the end: {self}"

    def __str__(self) -> str:
        errors = "" if not self.error else f", {abs(self.by) / self.error:.1f} standard errors"
        return f"{figure(self.start.value)} ({when(self.start.step)}) to {figure(self.end.value)} ({when(self.end.step)}{errors})"


class Record:
    """Metrics, summary, recipe and stopped.json of a run, as far as they exist."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.rows: Sequence[Mapping[str, Any]] = JsonLines(directory / METRICS).read()
        stopped, recipe, summary = directory / STOPPED, directory / RECIPE_FILE, directory / SUMMARY
        self.stopped = read_stopped(stopped) if stopped.is_file() else None
        data = read_file(recipe) if recipe.is_file() else {}
        self.run: Mapping[str, Any] = run_of(recipe, data) if "run" in data else {}
        self.summary: Mapping[str, Any] = asdict(Summary.load(summary)) if summary.is_file() else {}

    def __call__(self, name: str) -> list[float]:
        """The values of a metric, for the steps that have it."""
        return [row[name] for row in self.rows if row.get(name) is not None]

    @cached_property
    def family(self) -> str | None:
        """TOKENS, CONTROL or SAMPLES, by the unit that its steps count (``DRAWN``); None before the first step, and then only rules for
        all families apply."""
        if not self.rows:
            return None
        return next((unit for unit in (TOKENS, CONTROL) if unit in self.rows[-1]), SAMPLES)

    @property
    def offline(self) -> bool:
        """Whether it trains on recorded answers or episodes, whose scores say nothing about the policy."""
        kinds = {
            self.setting(f"{part}.class", "") for part in ("workflow", "engine")
        }  # Demonstrated was once an engine
        return bool(kinds & {"Demonstrated", "Playback"})

    @property
    def scored(self) -> bool:
        """Whether the training score says something of the policy: no reward scores what only a teacher grades."""
        graded = self.setting("reference.class", "") and not self.setting("rewards", ())
        pieces = self.setting("engine.segment", 0) and not self(
            RETURN
        )  # no episode has ended: they show none of it whole
        return not self.offline and not graded and not pieces

    @property
    def updated(self) -> Sequence[Mapping[str, Any]]:
        """The steps that moved the policy: the first of an off-policy run only fill its buffer."""
        moved = moving([row.get("replay/moves") for row in self.rows])
        return [row for row, once in zip(self.rows, moved, strict=True) if once]

    def late(self, name: str) -> float | None:
        """Its median over the second half of the run."""
        values = self(name)
        return statistics.median(values[len(values) // 2 :]) if values else None

    def early(self, name: str) -> float | None:
        """Its median over the first quarter."""
        values = self(name)
        return statistics.median(values[: (len(values) + 3) // 4]) if values else None

    def ends(self, name: str) -> Change | None:
        """From the first quarter to the last; None if the run is too short."""
        return self._change(name, best=False)

    def from_best(self, name: str) -> Change | None:
        """From the best quarter of the run to its last."""
        return self._change(name, best=True)

    def _change(self, name: str, best: bool) -> Change | None:
        known = [(row["step"], row[name]) for row in self.rows if row.get(name) is not None]
        if len(known) < TREND:
            return None
        # Even, because batches of long and short rollouts alternate in a decoupled run.
        width = 2 * math.ceil(len(known) / 8)
        steps, values = zip(*known, strict=True)
        # A window's mean is the difference of two sums: long runs have thousands of windows.
        sums = [0.0, *accumulate(values)]

        def window(first: int) -> Point:
            return Point(step=int(steps[first + width - 1]), value=(sums[first + width] - sums[first]) / width)

        start, last = window(0), len(known) - width
        if best:
            start = _best(map(window, range(max(1, last - width + 1))), name)
        return Change(
            name=name,
            start=start,
            end=window(last),
            error=math.sqrt(2 * max(noise(values), self._sampling(name)) / width),
            limit=_limit(CURVE, len(known) // width if best else 1),
        )

    def _sampling(self, name: str) -> float:
        """The variance of a step's mean score from sampling its rollouts: a lower bound on noise, however calm twelve steps look."""
        count = max(1, self.run.get("prompts_per_step", 16) * self.run.get("num_generations", 8))
        if name == "pass_rate":
            return statistics.fmean(value * (1 - value) for value in self(name)) / count
        spread = self("reward/std") if name == "reward/mean" else []
        return statistics.fmean(value * value for value in spread) / count if spread else 0.0

    @cached_property
    def evals(self) -> tuple[str, list[Point]]:
        """(the figure of the evaluations that shows best what was learned, its points in order)."""
        for name in ranked(*(figures for _, figures in self.evaluated)):
            found = {step: float(figures[name]) for step, figures in self.evaluated if figures.get(name) is not None}
            if found:
                return name, [Point(step=step, value=value) for step, value in sorted(found.items())]
        return "eval/score", []

    @property
    def evaluated(self) -> list[tuple[int, Mapping[str, Any]]]:
        """(step, figures) of each evaluation, in order: before the first step, during the run, after the last."""
        found = [(0, self.summary.get("before") or {}), *((int(row["step"]), row) for row in self.rows)]
        found += [(int(self.summary.get("steps", len(self.rows))), self.summary.get("after") or {})]
        return [(step, figures) for step, figures in found if any(name.startswith("eval/") for name in figures)]

    @property
    def empties(self) -> list[tuple[int, float, float]]:
        """(step, share of empty samples, of empty greedy answers) for each evaluation that records them."""
        names = ("eval/empty_frac", "eval/greedy_empty_frac")
        return [
            (step, float(figures[names[0]]), float(figures[names[1]]))
            for step, figures in self.evaluated
            if all(figures.get(name) is not None for name in names)
        ]

    def end(self, name: str) -> float | None:
        """The last value of a figure of the evaluation."""
        return next((figures[name] for _, figures in reversed(self.evaluated) if figures.get(name) is not None), None)

    @cached_property
    def evaluation(self) -> Change | None:
        """The evaluation from its best to its last; from its first if that is the best; None unless there are two."""
        points = self.evals[1]
        if len(points) < 2:
            return None
        return self._between(_best(points[:-1], self.evals[0]), points[-1], len(points) - 1)

    @cached_property
    def learned(self) -> Change | None:
        """The evaluation from its first to its last."""
        points = self.evals[1]
        return self._between(points[0], points[-1], 1) if len(points) > 1 else None

    def _between(self, start: Point, end: Point, count: int) -> Change:
        name = self.evals[0]
        return Change(
            name=name,
            start=start,
            end=end,
            error=self._evaluation_error(name, start, end),
            limit=_limit(EVALUATION, count),
        )

    def _evaluation_error(self, name: str, start: Point, end: Point) -> float | None:
        """Error when the same tasks are sampled twice: at most p (1 - p) over all samples, or over all greedy ones; for a return, by
        its spread over the evaluation's own tasks; for a loss by that over rows, and none of what it gained, as the rows are the
        same; for another score by the score's in training; None for what is neither."""
        of = dict(self.evaluated)
        own = [float(error) for point in (start, end) if (error := of[point.step].get(name + ERROR)) is not None]
        if len(own) == 2 and not (name in LOSS and end.value <= start.value):
            return math.hypot(*own)
        held_out = self.run.get("held_out") or {}
        size = of[end.step].get(TASKS) or (held_out.get("tasks") or {}).get("size")
        if not isinstance(size, int | float):
            return None
        count = size * (1 if name in SUCCESS else held_out.get("samples", 4))
        if name == "eval/pass@1" or name in SUCCESS:
            # One more success and failure, so that 0 of 64 is not certain.
            shares = [(point.value * count + 1) / (count + 2) for point in (start, end)]
            return math.sqrt(sum(share * (1 - share) for share in shares) / count)
        rows = [row for row in self.rows if row.get("reward/std") is not None]
        # Segments: no episode's spread.
        if name != "eval/score" or not rows or held_out.get("rewards") is not None or self.earned == RETURN:
            return None
        variance = 0.0
        for point in (start, end):
            near = sorted(rows, key=lambda row: abs(row["step"] - point.step))[:NEAR]
            variance += statistics.fmean(row["reward/std"] ** 2 for row in near)
        return math.sqrt(variance / count)

    @cached_property
    def reward(self) -> Change | None:
        """The training score, first quarter to last; None for recorded answers."""
        return self.ends(self.earned) if self.scored else None

    @cached_property
    def earned(self) -> str:
        """The metric of the training score; of rows that are segments, the return of the episodes that ended; where rewards only
        measure, so that the score is always 0, what they measure."""
        if self.setting("engine.segment", 0) and any(RETURN in row for row in self.rows):
            return RETURN
        measured = {} if any(self("reward/mean")) or not self.rows else measures(self.rows[-1], "reward/")
        return next(iter(measured), "reward/mean")

    @cached_property
    def fallen(self) -> list[Change]:
        """Evaluation and score, if they fell beyond chance, in this order. If the evaluation gained, a falling score does not count,
        unless it rose and then lost most of it: an evaluation at both ends cannot see that."""
        found = [self.evaluation] if self.evaluation is not None and self.evaluation.fell else []
        if not self.scored:
            return found
        if not found and self.learned is not None and self.learned.rose:
            return self._lost_again
        names = (self.earned, "pass_rate") if self.family == TOKENS else (self.earned,)
        for name in names:
            changes = [
                change for change in (self.ends(name), self.from_best(name)) if change is not None and change.fell
            ]
            if changes:
                return [*found, min(changes, key=lambda change: change.gain)]
        return found

    @property
    def _lost_again(self) -> list[Change]:
        ends, change = self.ends(self.earned), self.from_best(self.earned)
        if ends is None or change is None or change.error is None or not change.fell:
            return []
        won = change.start.value - ends.start.value
        won = -won if smaller(change.name) else won
        return [change] if won > change.limit * change.error and -change.gain > LOST * won else []

    @cached_property
    def flat(self) -> bool:
        """Whether nothing suggests that anything was learned, in a run long enough to say so."""
        changes = [change for change in (self.learned, self.reward) if change is not None]
        if not changes or len(self.rows) < TREND or self.solved or self.fallen:
            return False
        if self.learned is None:
            return not changes[0].rose
        # If there is an evaluation, a small rise of the score does not count.
        return not self.learned.rose and (self.reward is None or not self.reward.surely_rose)

    @property
    def unsure(self) -> bool:
        """Whether a gain is not certain, in a run long enough for one."""
        change = self.learned or self.reward
        return change is not None and len(self.rows) >= TREND and not change.surely_rose and not self.solved

    @property
    def solved(self) -> bool:
        """Uses the mean, not the median: with two rollouts per step, most steps may be all right and the rest all wrong."""
        rates = self("pass_rate")
        return bool(rates) and self.family != CONTROL and statistics.fmean(rates[len(rates) // 2 :]) >= SOLVED

    def setting(self, path: str, default: Any) -> Any:
        """A field of the recipe by its dotted path."""
        found: Any = self.run
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        return default if found is None else found

    def part(self, place: str, kind: str) -> Mapping[str, Any] | None:
        """The part of this class in a list of the recipe."""
        return next((part for part in self.run.get(place) or () if part.get("class") == kind), None)

    def checkpoint(self, step: int) -> Path | None:
        """The newest remaining checkpoint at or before this step."""
        kept = sorted(self.directory.glob("checkpoints/step_*"))
        return next((path for path in reversed(kept) if int(path.name.removeprefix("step_")) <= step), None)

    def again(self, *changes: str) -> str:
        """The command to repeat the run with these keys: at its planned length, or a quarter of a long run."""
        planned = self.setting("steps", len(self.rows))
        shorter = [f"steps={planned // 4}"] if planned > LONG_RUN else []
        return shlex.join(["gimbal", "train", "--from", str(self.directory), *shorter, *changes])

    @property
    def learning_rate(self) -> float:
        return self.setting("optimization.learning_rate", self.setting("update.optimization.learning_rate", 1e-4))

    @property
    def held(self) -> bool:
        """Whether a closed loop sets the learning rate, so that the given one is only its start."""
        return self._region is not None

    @property
    def _region(self) -> float | None:
        return self.setting("stability.region.kl", self.setting("update.stability.region.kl", None))

    def rate(self, factor: float) -> str:
        """The key for steps this many times as large: the learning rate, or the loop's region."""
        if (region := self._region) is not None:  # a distance goes with the square of the rate
            key = "stability.region.kl" if "update" not in self.run else "update.stability.region.kl"
            return f"{key}={short(region * factor**2)}"
        return self.rate_of(self.learning_rate * factor)

    def rate_of(self, value: float) -> str:
        """The key for this learning rate."""
        key = "learning_rate" if "update" not in self.run else "update.optimization.learning_rate"
        return f"{key}={short(value)}"


def _best(points: Iterable[Point], name: str) -> Point:
    """The first of the best."""
    return (min if smaller(name) else max)(points, key=lambda point: point.value)


def moving(moves: Sequence[float | None]) -> list[bool]:
    """Whether each step made an update, by how many all steps up to it had made; None: it has no buffer."""
    return [now is None or now > (before or 0.0) for before, now in zip([0.0, *moves], moves, strict=False)]


def noise(values: Sequence[float]) -> float:
    """The variance of one step: neighbours differ by noise more than by learning, and so do second neighbours if two kinds of batch
    alternate."""
    return min(
        statistics.fmean((values[i + lag] - values[i]) ** 2 for i in range(len(values) - lag)) / 2 for lag in (1, 2)
    )


def _limit(errors: float, candidates: int) -> float:
    """The limit that excludes chance for the best of several, if the limit for one is ``errors``."""
    normal = statistics.NormalDist()
    return normal.inv_cdf(1 - (1 - normal.cdf(errors)) / max(1, candidates))


def figure(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def short(value: float) -> str:
    """One significant digit, as typed: 30, 0.01, 3e-05."""
    return f"{float(f'{value:.0e}'):g}"


def when(step: int) -> str:
    return f"step {step}" if step else "before step 1"


def names(record: Record, prefix: str) -> list[str]:
    return sorted({name for row in record.rows for name in row if name.startswith(prefix)})
