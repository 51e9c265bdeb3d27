"""Dose and response: what staleness, a coarse sampler and small groups cost each method, over seeds.

**Question.** From a dose that does no harm to one that does: age of the data (0, 1, 4, 16, 64 versions), precision of the
sampler's weights (float32, bfloat16, int8, int4), rollouts a group (2, 4, 8, 16, at 128 a step). One is varied, the others stay
at age 1, int8, groups of 8. ``ahead="full"`` makes every batch exactly as old as it may be once the pipeline is full; at age 64
all of a run of 60 steps learns from rollouts of its first weights.

**Rule.** A run has collapsed if its held-out pass@1, sampled by the sampler itself, ends below 0.45 (it starts at 0.36). A method
withstands a dose if none of its seeds collapses and its median lies within 0.05 of its median at the harmless dose of that axis
(age 0, float32, groups of 16). Ages 0 to 16 of all methods but ``decoupled`` had been seen when this rule was written; the rest
had not.

    python claims/dose.py            # goes on from claims/dose.json; the whole takes seven hours of one core
    python claims/dose.py --verdict  # the tables alone
"""

from __future__ import annotations

import argparse
import json
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gimbal.engines.native import Native
from gimbal.learning.method import Optimization
from gimbal.learning.proximal.base import AbstractAnchor
from gimbal.learning.proximal.behavior import Behavior
from gimbal.learning.proximal.recompute import Recompute
from gimbal.learning.proximal.sampling_version import SamplingVersion
from gimbal.objectives import TruncatedWeight
from gimbal.recipes.dcmdp import dcmdp
from gimbal.recipes.decoupled_ppo import decoupled_ppo
from gimbal.recipes.grpo import grpo
from gimbal.runtime.faults import Faults
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
STEPS, LEARNING_RATE, SEEDS, ROLLOUTS, LAST = 60, 1e-4, 5, 128, 10
COLLAPSED, WITHIN = 0.45, 0.05

METHODS = {
    "grpo": "GRPO, ratio to the policy before the update",
    "grpo-behavior": "GRPO, ratio to the sampler (anchor Behavior)",
    "grpo+tis": "GRPO + TIS",
    "decoupled": "decoupled PPO",
    "dcmdp-version": "DCMDP, anchor SamplingVersion",
}
ASIDE = {"dcmdp": "DCMDP, priced against the present policy", "dcmdp+tis": "DCMDP + TIS"}  # ages up to 16 only
BASE = {"age": 1, "precision": "int8", "group": 8}
AXES: dict[str, tuple[Any, ...]] = {
    "age": (0, 1, 4, 16, 64),
    "precision": ("float32", "bfloat16", "int8", "int4"),
    "group": (16, 8, 4, 2),
}  # the first of each is the harmless dose
KEY = ("method", "age", "precision", "group", "seed")


def cells() -> list[tuple[Any, ...]]:
    """Every (method, age, precision, group, seed), each once: axis by axis, and there seed by seed."""
    grid: list[tuple[Any, ...]] = []
    for axis, several in AXES.items():
        doses = [BASE | {axis: dose} for dose in several]
        grid += [(method, *dose.values(), seed) for seed in range(SEEDS) for dose in doses for method in METHODS]
    grid += [(m, age, "int8", 8, seed) for seed in range(SEEDS) for age in AXES["age"][:4] for m in ASIDE]
    return list(dict.fromkeys(grid))


def run_of(method: str, age: int, precision: str, group: int, seed: int) -> Run:
    base = {"decoupled": decoupled_ppo, "dcmdp": dcmdp}.get(method.split("-")[0].split("+")[0], grpo)()
    coarse = precision == "int4"
    return replace(
        base,
        correction=TruncatedWeight() if method.endswith("+tis") else base.correction,
        anchor=_anchor(method, age),
        engine=Native(precision="float32" if coarse else precision),
        faults=Faults(weight_precision="int4") if coarse else None,
        prompts_per_step=ROLLOUTS // group,
        num_generations=group,
        max_staleness=age,
        ahead="full",
        steps=STEPS,
        seed=seed,
        threads=1,
        optimization=Optimization(learning_rate=LEARNING_RATE),
    )


def _anchor(method: str, age: int) -> AbstractAnchor:
    """-behavior: the clip sees the whole ratio to the sampler. -version: it sees the staleness, and the price the rounding alone."""
    if method.endswith("-behavior"):
        return Behavior()
    return SamplingVersion(window=age) if method.endswith("-version") else Recompute()


def measure(cell: tuple[Any, ...]) -> dict[str, Any]:
    trainer = Trainer(run_of(*cell))
    try:
        rows = [trainer.advance()[0] for _ in range(STEPS)]
        exam = trainer.examine()
    finally:
        trainer.close()

    def mean(name: str, of: list[dict[str, float]] = rows) -> float | None:
        return (
            statistics.fmean(row[name] for row in of) if name in rows[0] else None
        )  # the anchor Behavior leaves it unmeasured

    return dict(zip(KEY, cell, strict=True)) | {
        "ages_seen": sorted({row["staleness/max"] for row in rows}),
        "exam": exam.pass_at[1],
        "reward": mean("reward/mean", rows[-LAST:]),
        "prob_diff": mean("mismatch/prob_diff"),
        "ess_token": mean("mismatch/ess_token"),
        "ess_sequence": mean("mismatch/ess_sequence"),
        "grad_norm": max(row["grad_norm"] for row in rows),
        "curve": [round(row["reward/mean"], 4) for row in rows],
    }


def exams(runs: list[dict[str, Any]], method: str, axis: str, dose: Any) -> list[float]:
    """The pass@1 of every seed at one dose."""
    where = BASE | {axis: dose, "method": method}
    return [run["exam"] for run in runs if all(run[name] == value for name, value in where.items())]


def withstands(harmless: list[float], here: list[float]) -> bool:
    return min(here) >= COLLAPSED and statistics.median(here) >= statistics.median(harmless) - WITHIN


def verdicts(runs: list[dict[str, Any]], axis: str) -> dict[str, dict[str, bool]]:
    """By method and dose, whether the method withstands it; doses without all of their seeds are left out."""
    found: dict[str, dict[str, bool]] = {}
    for method in METHODS | ASIDE:
        several = {dose: exams(runs, method, axis, dose) for dose in AXES[axis]}
        harmless = several[AXES[axis][0]]
        whole = {str(dose): here for dose, here in several.items() if len(here) == len(harmless) == SEEDS}
        if whole:
            found[method] = {dose: withstands(harmless, here) for dose, here in whole.items()}
    return found


def table(runs: list[dict[str, Any]], axis: str) -> str:
    """Median (least to most) over seeds, the share that collapsed if any did; bold where the method withstands the dose."""
    lines = [f"| {axis} | " + " | ".join(map(str, AXES[axis])) + " |", "| --- " * (len(AXES[axis]) + 1) + "|"]
    for method, found in verdicts(runs, axis).items():
        shown = []
        for dose in AXES[axis]:
            here = sorted(exams(runs, method, axis, dose))
            if str(dose) not in found:
                shown.append("")
                continue
            fallen = sum(value < COLLAPSED for value in here)
            text = f"{statistics.median(here):.3f} ({here[0]:.3f} to {here[-1]:.3f})"
            text = f"**{text}**" if found[str(dose)] else text
            shown.append(text + (f", {fallen} of {len(here)} collapsed" if fallen else ""))
        lines.append(f"| {(METHODS | ASIDE)[method]} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument("--verdict", action="store_true", help="run nothing")
    parser.add_argument("--record", type=Path, default=RECORD)
    words = parser.parse_args()
    runs = json.loads(words.record.read_text()) if words.record.exists() else []
    done = {tuple(run[name] for name in KEY) for run in runs}
    left = [] if words.verdict else [cell for cell in cells() if cell not in done]
    with ProcessPoolExecutor(words.processes, mp_context=get_context("spawn")) as pool:
        for run in pool.map(measure, left):
            runs.append(run)
            print(*(run[name] for name in KEY), f"{run['exam']:.3f}", flush=True)
            partial = words.record.with_suffix(".partial")
            partial.write_text("[\n" + ",\n".join(json.dumps(row) for row in runs) + "\n]\n")
            partial.replace(words.record)
    for axis in AXES:
        print("\n" + table(runs, axis))


if __name__ == "__main__":
    main()
