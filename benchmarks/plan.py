"""Does the simulator predict real runs? Speeds and lengths from a few local runs, forecasts of others that it has not seen.

The forecast runs differ from the calibrating ones in seed, staleness, slots, batch, length limit and ``ahead``. Each run is a process of
one thread. On a machine that is not idle, wall time measures the neighbours; so times are processor seconds unless ``--clock
wall`` says otherwise (with one thread and rewards in the same process they are the wall seconds of an idle machine).

    python benchmarks/plan.py --out benchmarks/plan.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from gimbal.engines.native import Native
from gimbal.recipes.grpo import grpo
from gimbal.records import Group, Sampling
from gimbal.report.files import JsonLines
from gimbal.rewards.base import AbstractReward
from gimbal.runtime import calibrate, local
from gimbal.runtime.run import Run

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


# Speeds and lengths come from these three, with seed 1 ...
CALIBRATION = (Case(0, 64, 8, 8, 64), Case(1, 12, 6, 4, 64), Case(1, 48, 8, 8, 20))
# ... and these are forecast, with seed 0.
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
    weight: float = 1.0

    def __call__(self, group: Group) -> list[float | None]:
        return [sum(c.isdigit() for c in r.text) / max(1, len(r.text)) for r in group.rollouts]


def run_of(case: Case, seed: int, steps: int) -> Run:
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
        seed=seed,
        threads=1,
        record_every=1,
    )


def measure(work: tuple[Case, int, int, str]) -> tuple[calibrate.Measured, dict[str, float]]:
    """One run, and what its metrics say of its ages and lengths."""
    case, seed, steps, clock = work
    if clock == "cpu":
        local.time = SimpleNamespace(perf_counter=time.process_time)  # type: ignore[assignment]
    run = run_of(case, seed, steps)
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        local.run_local(run, Path(directory), name=str(case))
        wall = time.perf_counter() - began
        rows, rollouts = (JsonLines(Path(directory) / f"{name}.jsonl").read() for name in ("metrics", "rollouts"))
    found = calibrate.measured(str(case), run, rows, rollouts, 0.0)
    timed = rows[1:]
    facts = {name: sum(row[name] for row in timed) / len(timed) for name in ("staleness/mean", "length/mean")}
    return found, {"wall_s_of_the_whole_run": wall, **facts}


def compare(real: calibrate.Measured, facts: dict[str, float], base: calibrate.Measured, speeds: Any) -> dict[str, Any]:
    """The forecast knows the case alone; lengths and prompt are the calibrating run's."""
    blind = replace(real, plan=replace(real.plan, lengths=base.plan.lengths, prompt=base.plan.prompt))
    forecast = calibrate.again(blind, speeds)
    return {
        "measured_rollouts_per_s": real.rollouts_per_s,
        "forecast_rollouts_per_s": forecast.rollouts_per_s,
        "error": forecast.rollouts_per_s / real.rollouts_per_s - 1,
        "measured_generate_share": real.generate / real.seconds,
        "forecast_generate_share": forecast.trainer_idle,
        "measured_age_mean": facts["staleness/mean"],
        "forecast_age_mean": forecast.age_mean,
        "measured_length_mean": facts["length/mean"],
        "forecast_length_mean": forecast.trained["decisions"] / forecast.trained["rollouts"],
        **facts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6, help="of a run; the first is a warm-up")
    parser.add_argument("--clock", choices=("cpu", "wall"), default="cpu")
    parser.add_argument("--processes", type=int, default=1, help="runs at a time")
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    work = [(case, 1, words.steps, words.clock) for case in CALIBRATION]
    work += [(case, 0, words.steps, words.clock) for case in FORECAST]
    with ProcessPoolExecutor(words.processes, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        done = list(pool.map(measure, work))
    known, unseen = done[: len(CALIBRATION)], done[len(CALIBRATION) :]
    base, speeds = known[0][0], calibrate.fit([run for run, _ in known])
    report = {
        "clock": words.clock,
        "steps": words.steps,
        "calibration": [asdict(case) for case in CALIBRATION],
        "speeds": asdict(speeds),
        "calibration_runs": [compare(run, facts, run, speeds) for run, facts in known],
        "forecasts": [
            {**asdict(case), **compare(run, facts, base, speeds)}
            for case, (run, facts) in zip(FORECAST, unseen, strict=True)
        ],
    }
    print(json.dumps(report["speeds"]))
    for row in report["forecasts"]:
        case = {name: row[name] for name in asdict(FORECAST[0])}
        print(
            f"{case}: measured {row['measured_rollouts_per_s']:.4g} rollouts/s, forecast {row['forecast_rollouts_per_s']:.4g} "
            f"({row['error']:+.1%}); generation {row['measured_generate_share']:.0%} / {row['forecast_generate_share']:.0%}; "
            f"age {row['measured_age_mean']:.2f} / {row['forecast_age_mean']:.2f}"
        )
    errors = [abs(row["error"]) for row in report["forecasts"]]
    print(f"within {GOAL:.0%}: {sum(error <= GOAL for error in errors)} of {len(errors)}; worst {max(errors):.1%}")
    if words.out:
        words.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
