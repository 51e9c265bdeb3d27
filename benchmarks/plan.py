"""Does the simulator predict real runs? Speeds and lengths from a few local runs, forecasts of others that it has not seen.

The forecast runs differ from the calibrating ones in staleness, slots, batch, length limit and ``ahead``; seed and tasks are the
same, as when a recipe is planned anew. All are run on one thread, in several rounds, each in another order. A run does the same
work in every round, to the bit, and neighbours on the machine only add to its time: each step counts with its least time over
rounds. Times are processor seconds, which are the wall seconds of an idle machine where there is one thread and rewards are in the
same process; ``--clock wall`` takes wall seconds.

    python benchmarks/plan.py --out benchmarks/plan.json
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from gimbal.engines.native import Native
from gimbal.recipes.grpo import grpo
from gimbal.records import Group, Sampling
from gimbal.rewards.base import AbstractReward
from gimbal.runtime import local
from gimbal.runtime.run import Run
from gimbal.runtime.simulate import calibrate
from gimbal.runtime.simulate.virtual import Speeds

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
    weight: float = 1.0

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
    words = parser.parse_args()
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
