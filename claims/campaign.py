"""The runs of a claim, several at a time, each recorded as it ends. What is recorded is not run again."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gimbal.runtime.local import Trainer

Runs = list[dict[str, Any]]


def load(path: Path) -> Runs:
    return json.loads(path.read_text()) if path.exists() else []


def write(runs: Sequence[Mapping[str, Any]], path: Path) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text("[\n" + ",\n".join(json.dumps(row) for row in runs) + "\n]\n")
    partial.replace(path)


def asked(about: str | None, record: Path) -> argparse.Namespace:
    """The command line of a claim: where its record is, and how many runs go on at a time."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, default=record)
    parser.add_argument("--processes", type=int, default=1, help="runs at a time, one thread each")
    return parser.parse_args()


def campaign(
    about: str | None,
    record: Path,
    left: Callable[[Runs], Iterable[Iterable[Any]]],
    measure: Callable[[Any], dict[str, Any]],
    told: Callable[[Mapping[str, Any]], str],
) -> None:
    """Measure the jobs that are ``left``, in parts of which each may go by the runs of those before."""
    words = asked(about, record)
    runs = load(words.record)
    with ProcessPoolExecutor(words.processes, mp_context=get_context("spawn")) as pool:
        for jobs in left(runs):
            waiting = {pool.submit(measure, job) for job in jobs}
            while waiting:
                ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ended:
                    runs.append(found := future.result())
                    print(told(found), flush=True)
                write(runs, words.record)


def ends(
    before: Mapping[str, float], after: Mapping[str, float], figures: Mapping[str, str], digits: int = 4
) -> dict[str, float]:
    """What is recorded of two evaluations: ``NAME_before`` and ``NAME_after`` of each figure, by the name of its metric."""
    both = (("before", before), ("after", after))
    return {f"{name}_{when}": round(found[key], digits) for when, found in both for name, key in figures.items()}


def chosen(rate: float | None, rates: Sequence[float]) -> str:
    """The rate of an arm as its table says it: where none is beyond it among those tried, a better one may be."""
    if rate is None:
        return ""
    edges = {min(rates): "lowest tried", max(rates): "highest tried"} if len(rates) > 1 else {}
    return f"{rate:g} ({edges[rate]})" if rate in edges else f"{rate:g}"


@dataclass(frozen=True)
class Tuned:
    """Arms that have one run at each learning rate, and then their fresh seeds at the best: the rate of the largest ``figure``, or of
    the largest ``worth``."""

    arms: tuple[str, ...]
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    figure: str
    seed: int = 100  # of the tuning runs
    worth: Callable[[Mapping[str, Any]], float] | None = None

    def tried(self, runs: Sequence[Mapping[str, Any]], arm: str) -> dict[float, Mapping[str, Any]]:
        """Rate -> its tuning run, in the order of rates."""
        found = {run["rate"]: run for run in runs if (run["arm"], run["seed"]) == (arm, self.seed)}
        return dict(sorted(found.items()))

    def best(self, runs: Sequence[Mapping[str, Any]], arm: str) -> float | None:
        """The rate of an arm, once all have been tried; the smaller of equals."""
        tried, worth = self.tried(runs, arm), self.worth or (lambda run: run[self.figure])
        return max(tried, key=lambda rate: worth(tried[rate])) if len(tried) == len(self.rates) else None

    def chosen(self, runs: Sequence[Mapping[str, Any]], arm: str) -> str:
        """The rate of an arm as its table says it. Nothing is said of the edges to an arm that has the same figure at all rates."""
        tried = [run[self.figure] for run in self.tried(runs, arm).values()]
        return chosen(self.best(runs, arm), self.rates if len(set(tried)) > 1 else ())

    def fresh(self, runs: Sequence[Mapping[str, Any]], arm: str) -> list[Mapping[str, Any]]:
        """The runs of the fresh seeds at the arm's rate, in the order of seeds."""
        rate = self.best(runs, arm)
        own = [run for run in runs if (run["arm"], run["rate"]) == (arm, rate) and run["seed"] in self.seeds]
        return sorted(own, key=lambda run: run["seed"])

    def left(self, runs: Sequence[Mapping[str, Any]]) -> Iterator[list[tuple[str, float, int]]]:
        """(arm, rate, seed) of what is not recorded: tuning, then the fresh seeds; ``runs`` grows meanwhile."""
        done = {(run["arm"], run["rate"], run["seed"]) for run in runs}
        yield [job for arm in self.arms for rate in self.rates if (job := (arm, rate, self.seed)) not in done]
        rates = {arm: self.best(runs, arm) for arm in self.arms}
        jobs = [(arm, rate, seed) for seed in self.seeds for arm, rate in rates.items() if rate is not None]
        yield [job for job in jobs if job not in done]

    def above(
        self, runs: Sequence[Mapping[str, Any]], one: str, other: str, figure: str = ""
    ) -> tuple[float, float, float] | None:
        """By how much one arm is above another, and its interval, once all seeds of both are there."""
        own, theirs = ([run[figure or self.figure] for run in self.fresh(runs, arm)] for arm in (one, other))
        return shift(own, theirs) if min(len(own), len(theirs)) == len(self.seeds) else None

    @property
    def whole(self) -> int:
        return len(self.arms) * (len(self.rates) + len(self.seeds))


def interacted(trainer: Any, steps: int) -> dict[str, float]:
    """The metrics of a run's last learner step, once its environment has taken so many."""
    metrics: dict[str, float] = {}
    while metrics.get("env_steps", 0) < steps:
        metrics, *_ = trainer.advance()
    return metrics


def timed(run: Any, steps: int) -> tuple[Trainer, dict[str, float], float]:
    """A run whose environment has taken so many steps, the metrics of the last, and the CPU seconds that they took."""
    trainer = Trainer(run)
    trainer.begin()
    start = time.process_time()
    metrics = interacted(trainer, steps)
    return trainer, metrics, time.process_time() - start


def most_at(points: Sequence[tuple[float, float]], least: float) -> float:
    """The largest y where x is at least ``least``, on the lines between neighbouring points (x, y); 0 where none is."""
    most = max((y for x, y in points if x >= least), default=0.0)
    for (x, y), (next_x, next_y) in pairwise(points):
        if min(x, next_x) < least <= max(x, next_x):
            most = max(most, y + (least - x) / (next_x - x) * (next_y - y))
    return round(most, 4)


def shift(one: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """By how much ``one`` is above ``other``: the median of all differences, and its exact interval by the test of Mann and Whitney.

    The third difference from either end: five runs and five lie within it with 244 / 252, 96.8 %, if their distributions differ
    in place alone.
    """
    apart = sorted(x - y for x in one for y in other)
    assert len(one) == len(other) == 5, (one, other)
    return statistics.median(apart), apart[2], apart[-3]


def described(run: Mapping[str, Any]) -> str:
    """A record in one line, for the console, without its curves."""
    return " ".join(f"{name} {value}" for name, value in run.items() if not isinstance(value, list))
