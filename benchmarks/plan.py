"""Does the simulator predict real runs? Speeds and lengths from a few local runs, forecasts of others that it has not seen.

The forecast runs differ from the calibrating ones in staleness, slots, batch, length limit and ``ahead``; seed and tasks are the
same, as when a recipe is planned anew. All are run on one thread, in several rounds, each in another order. A run does the same
work in every round, to the bit, and neighbours on the machine only add to its time: each step counts with its least time over
rounds. Times are processor seconds, which are the wall seconds of an idle machine where there is one thread and rewards are in the
same process; ``--clock wall`` takes wall seconds.

    python benchmarks/plan.py --out benchmarks/plan.json
    python benchmarks/plan.py --ray --out benchmarks/plan.json       # adds to the record; needs the extra [ray]

``--ray``: speeds from runs on Ray actors without tools (what workers log of drawing and loading, the learner's seconds), then forecasts
of runs with slow tools, synchronous and not, in wall seconds. How the tools' times are distributed is known to it, lengths it takes
from the calibrating runs.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Literal

import decoupled
import numpy as np

from gimbal.engines.native import Native
from gimbal.policies.token import Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.records import Group
from gimbal.report.files import JsonLines
from gimbal.rewards.base import AbstractReward
from gimbal.runtime import local
from gimbal.runtime.run import Run
from gimbal.runtime.simulate import calibrate
from gimbal.runtime.simulate.simulator import Forecast, Setup, simulate
from gimbal.runtime.simulate.timing import Speeds, Waits

GOAL = 0.15


@dataclass(frozen=True)
class Case:
    """What distinguishes a run."""

    k: int
    slots: int
    prompts: int
    generations: int
    limit: int
    ahead: Literal["ready", "full"] = "ready"


# Speeds and lengths come from these: from 16 to 192 rollouts a step, which is the range of the forecasts, since the
# learner's seconds do not grow in proportion (docs/scale.md) ...
CALIBRATION = (
    Case(0, 192, 16, 12, 64),
    Case(2, 96, 16, 8, 40),
    Case(0, 64, 8, 8, 64),
    Case(1, 12, 4, 4, 64),
    Case(1, 48, 8, 8, 20),
)
# ... and these are forecast.
FORECAST = (
    Case(0, 128, 16, 8, 64),
    Case(1, 128, 16, 8, 64),
    Case(0, 16, 8, 4, 64),
    Case(2, 24, 4, 8, 64, "full"),
    Case(4, 96, 8, 8, 64),
    Case(1, 8, 4, 4, 32),
    Case(3, 32, 6, 8, 40, "full"),
    Case(0, 256, 12, 16, 48),
)


@dataclass(frozen=True, kw_only=True)
class Digits(AbstractReward):
    """The share of digits in the text: a reward that costs nothing and runs in this process."""

    name: str = "digits"

    def __call__(self, group: Group) -> list[float | None]:
        return [sum(c.isdigit() for c in r.text) / max(1, len(r.text)) for r in group.rollouts]


def run_of(case: Case, steps: int) -> Run:
    return replace(
        grpo(),
        engine=Native(slots=case.slots, precision="int8"),
        rewards=(Digits(),),
        sampling=Sampling(max_length=case.limit),
        prompts_per_step=case.prompts,
        num_generations=case.generations,
        max_staleness=case.k,
        ahead=case.ahead,
        held_out=None,
        steps=steps,
        threads=1,
        record_every=1,
    )


@dataclass(frozen=True)
class RayCase:
    """What distinguishes a run on Ray: tools of a lognormal time of this median, sigma 1.2, at most ``longest`` seconds."""

    k: int
    slots: int
    prompts: int
    median: float = 0.0
    longest: float = 0.0


RAY_CALIBRATION = (RayCase(0, 4, 16), RayCase(4, 4, 16), RayCase(4, 16, 8))
RAY_FORECAST = (
    RayCase(0, 4, 16, 0.4, 2.0),
    RayCase(4, 4, 16, 0.4, 2.0),
    RayCase(0, 8, 8, 0.4, 8.0),
    RayCase(1, 8, 8, 0.4, 4.0),
    RayCase(4, 8, 8, 0.4, 8.0),
    RayCase(2, 4, 8, 0.8, 4.0),
)
WORKERS, RAY_STEPS, RAY_WARM = 2, 16, 6


Rows = list[dict[str, Any]]


def measure(case: Case, steps: int, clock: str) -> tuple[Rows, Rows]:
    """One run: its metrics, and of its rollouts what rollouts.jsonl would hold."""
    ticks = time.process_time if clock == "cpu" else time.perf_counter
    local.time = SimpleNamespace(perf_counter=ticks)  # type: ignore[assignment]
    trainer, rows, rollouts = local.Trainer(run_of(case, steps)), [], []
    try:
        for _ in range(steps):
            metrics, groups, _ = trainer.advance()
            rows.append(metrics)
            rollouts += [
                {
                    "group": group.index,
                    "version": r.version_S.tolist(),
                    "pieces": trainer.pieces(r),
                    "prompt": r.task.prompt,
                }
                for group in groups
                for r in group.rollouts
            ]
    finally:
        trainer.close()
    return rows, rollouts


def least(rounds: list[Rows]) -> Rows:
    """The rows of equal runs, each time the least that any of them took."""
    merged = []
    for rows in zip(*rounds, strict=True):
        assert len({row["length/mean"] for row in rows}) == 1, "the rounds did not do the same work"
        times = {name: min(row[name] for row in rows) for name in rows[0] if name.startswith("time/")}
        merged.append({**rows[0], **times})
    return merged


def compare(real: calibrate.Measured, rows: Rows, known: calibrate.Measured, speeds: Speeds) -> dict[str, Any]:
    """The forecast knows the case alone; lengths and prompt are those of calibrating runs."""
    timed = rows[1:]
    facts = {name: sum(row[name] for row in timed) / len(timed) for name in ("staleness/mean", "length/mean")}
    blind = replace(real, plan=replace(real.plan, lengths=known.plan.lengths, prompt=known.plan.prompt))
    forecast = calibrate.again(blind, speeds)
    return {
        "measured_rollouts_per_s": real.rollouts_per_s,
        "forecast_rollouts_per_s": forecast.rollouts_per_s,
        "error": forecast.rollouts_per_s / real.rollouts_per_s - 1,
        "error_at_its_lengths": calibrate.again(real, speeds).rollouts_per_s / real.rollouts_per_s - 1,
        "measured_generate_share": real.generate / real.seconds,
        "forecast_generate_share": forecast.trainer_idle,
        "measured_age_mean": facts["staleness/mean"],
        "forecast_age_mean": forecast.age_mean,
        "measured_length_mean": facts["length/mean"],
        "forecast_length_mean": forecast.trained["decisions"] / forecast.trained["rollouts"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6, help="of a run; the first is a warm-up")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=("cpu", "wall"), default="cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--ray", action="store_true", help="runs on Ray with slow tools instead; adds to the record")
    words = parser.parse_args()
    if words.ray:
        found = on_ray()
        if words.out:
            known = json.loads(words.out.read_text()) if words.out.exists() else {}
            words.out.write_text(json.dumps(known | found, indent=1) + "\n")
        return
    work, order = [*CALIBRATION, *FORECAST], random.Random(0)
    rounds: list[list[tuple[Rows, Rows]]] = []
    for number in range(words.rounds):
        # In another order each time, so that a change of the machine's load favours neither kind.
        done = {case: measure(case, words.steps, words.clock) for case in order.sample(work, len(work))}
        rounds.append([done[case] for case in work])
        report = summary(work, rounds, words.steps) | {"clock": words.clock, "steps": words.steps, "rounds": number + 1}
        show(report)
        if words.out:
            words.out.write_text(json.dumps(report, indent=1) + "\n")


@dataclass(frozen=True, kw_only=True)
class RayRun:
    """A run on Ray: the metrics of its steps after the warm-up, its rollouts, each worker's seconds and what it did in them."""

    rows: Rows
    rollouts: Rows
    used: list[tuple[float, decoupled.Usage]]

    @property
    def gap(self) -> float:
        """Share of the workers' time between calls, or with nothing in flight."""
        busy = sum(of.drawing + of.loading + of.waiting for _, of in self.used)
        return 1 - busy / sum(span for span, _ in self.used)

    def total(self, name: str) -> float:
        return sum(row[name] for row in self.rows)


def ray_run(case: RayCase, directory: Path) -> RayRun:
    tool = decoupled.SlowTool(
        engine=Native(slots=case.slots, precision="int8"),
        median=case.median,
        longest=case.longest,
    )
    log = directory.with_suffix(".log")
    run = decoupled.run_of(0, case.k, RAY_STEPS, WORKERS, tool)
    rows = decoupled.trained(replace(run, prompts_per_step=case.prompts, held_out=None, record_every=1), directory, log)
    rollouts = JsonLines(directory / "rollouts.jsonl").read()
    return RayRun(rows=rows[RAY_WARM:], rollouts=list(rollouts), used=decoupled.usage(log, RAY_WARM))


def ray_setup(cases: Sequence[RayCase], runs: Sequence[RayRun], gap: float) -> Setup:
    """Speeds and lengths. Prompts count as a part of starts; ``gap``, what a worker loses between calls, lengthens its drawing."""
    used = [of for run in runs for _, of in run.used]
    work = np.array([[of.steps, of.rows, of.starts] for of in used], dtype=float)
    drawing = calibrate.solve(work, np.array([of.drawing / (1 - gap) for of in used]), (0.4, 0.3, 0.3))
    decisions = [case.prompts * 8 * run.total("length/mean") for case, run in zip(cases, runs, strict=True)]
    trained = np.array([[len(run.rows), n] for run, n in zip(runs, decisions, strict=True)])
    train = calibrate.solve(trained, np.array([run.total("time/train") for run in runs]), (0.2, 0.8))
    steps = sum(len(run.rows) for run in runs)
    rollouts = [{**line, "group": (i, line["group"])} for i, run in enumerate(runs) for line in run.rollouts]
    lengths, _ = calibrate.recorded(rollouts, [row for run in runs for row in run.rows], 64, "the calibration")
    speeds = Speeds(
        **dict(zip(("step_s", "row_s", "start_s"), drawing, strict=True)),
        **dict(zip(("train_step_s", "train_token_s"), train, strict=True)),
        load_s=sum(of.loading for of in used) / len(used) / (RAY_STEPS - RAY_WARM),
        sync_s=sum(run.total("time/sync") for run in runs) / steps,
    )
    steps = RAY_STEPS - RAY_WARM
    return Setup(speeds=speeds, lengths=lengths, prompt=0, samplers=WORKERS, warmup=RAY_WARM, steps=steps)


def ray_simulated(case: RayCase, known: Setup) -> list[Forecast]:
    plan = replace(
        known,
        waits=Waits(median=case.median, sigma=1.2, longest=case.longest),
        slots=case.slots,
        prompts_per_step=case.prompts,
        max_staleness=case.k,
    )
    return [simulate(replace(plan, seed=seed), "partial-rollout" if case.k else "sync") for seed in range(20)]


def ray_forecast(case: RayCase, run: RayRun, known: Setup, gap: float) -> dict[str, Any]:
    """``error_at_its_speeds``: with what was measured in this run itself, so that only the order of things is forecast."""
    rollouts = len(run.rows) * case.prompts * 8
    forecasts, own = ray_simulated(case, known), ray_simulated(case, ray_setup([case], [run], gap))
    measured = rollouts / run.total("time/step")
    forecast, at_own = (rollouts * 20 / sum(one.seconds for one in of) for of in (forecasts, own))
    only_tools = sum(of.waiting for _, of in run.used) / sum(span for span, _ in run.used)
    return {
        **asdict(case),
        "measured_rollouts_per_s": measured,
        "forecast_rollouts_per_s": forecast,
        "error": forecast / measured - 1,
        "error_at_its_speeds": at_own / measured - 1,
        "measured_idle_or_only_tools": run.gap + only_tools,
        "forecast_idle_or_only_tools": sum(one.sampler_idle for one in forecasts) / 20,
        "measured_age_mean": run.total("staleness/mean") / len(run.rows),
        "forecast_age_mean": sum(one.age_mean for one in forecasts) / 20,
    }


def on_ray() -> dict[str, Any]:
    """The record's part about Ray."""
    import ray

    ray.init("local", num_cpus=2, object_store_memory=200_000_000, include_dashboard=False, log_to_driver=False)
    work = [*RAY_CALIBRATION, *RAY_FORECAST]
    try:
        with TemporaryDirectory() as folder:
            # In mixed order, so that a change of the machine's load favours neither kind.
            done = {
                i: ray_run(work[i], Path(folder) / str(i)) for i in random.Random(0).sample(range(len(work)), len(work))
            }
            runs = [done[i] for i in range(len(work))]
    finally:
        ray.shutdown()
    count = len(RAY_CALIBRATION)
    gap = min(run.gap for run in runs[:count])  # of the run in which workers ran dry least
    known = ray_setup(RAY_CALIBRATION, runs[:count], gap)
    rows = [ray_forecast(case, run, known, gap) for case, run in zip(work, runs, strict=True)]
    for row in rows:
        print(json.dumps(row))
    print(known.speeds)
    return {"ray": rows[count:], "ray_calibration": rows[:count], "ray_speeds": asdict(known.speeds)}


def summary(work: list[Case], rounds: list[list[tuple[Rows, Rows]]], steps: int) -> dict[str, Any]:
    """Forecasts beside measurements, by the rounds so far."""
    all_rows = [least([one[i][0] for one in rounds]) for i in range(len(work))]
    runs = [
        calibrate.measured(str(case), run_of(case, steps), rows, rounds[0][i][1], 0.0)
        for i, (case, rows) in enumerate(zip(work, all_rows, strict=True))
    ]
    count = len(CALIBRATION)
    known, speeds = calibrate.pooled(runs[:count]), calibrate.fit(runs[:count])
    rows = [
        {**asdict(case), **compare(run, rows, run if i < count else known, speeds), "spread": spread(rounds, i)}
        for i, (case, run, rows) in enumerate(zip(work, runs, all_rows, strict=True))
    ]
    return {"speeds": asdict(speeds), "calibration": rows[:count], "forecasts": rows[count:]}


def spread(rounds: list[list[tuple[Rows, Rows]]], i: int) -> float:
    """How much longer the slowest round of this run took than the fastest, for the same work: the noise of the machine."""
    seconds = [sum(row["time/step"] for row in one[i][0][1:]) for one in rounds]
    return max(seconds) / min(seconds) - 1


def show(report: dict[str, Any]) -> None:
    print(f"round {report['rounds']}:", json.dumps(report["speeds"]))
    for row in [*report["calibration"], *report["forecasts"]]:
        case = {name: row[name] for name in asdict(FORECAST[0])}
        print(
            f"{case}: measured {row['measured_rollouts_per_s']:.4g} rollouts/s, "
            f"forecast {row['forecast_rollouts_per_s']:.4g} ({row['error']:+.1%}; {row['error_at_its_lengths']:+.1%} at its "
            f"own lengths; rounds differ by {row['spread']:.0%}); "
            f"generation {row['measured_generate_share']:.0%} / {row['forecast_generate_share']:.0%}; "
            f"length {row['measured_length_mean']:.1f} / {row['forecast_length_mean']:.1f}; "
            f"age {row['measured_age_mean']:.2f} / {row['forecast_age_mean']:.2f}"
        )
    errors = [abs(row["error"]) for row in report["forecasts"]]
    good = sum(error <= GOAL for error in errors)
    print(f"within {GOAL:.0%}: {good} of {len(errors)}; worst {max(errors):.1%}", flush=True)


if __name__ == "__main__":
    main()
