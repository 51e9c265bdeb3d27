"""What staleness and a rounded sampler cost, and what corrections give back: methods x ages x seeds, each a whole run.

The sampler is int8, so it is never the trainer; ``ahead="full"`` makes every batch exactly ``age`` versions old once the pipeline is
full. Reported of each cell over seeds: held-out pass@1 *in the sampler* at the end, the reward of the last ten batches, mean
|p - p'|, the effective share of samples by token and by sequence, the largest gradient norm before clipping.

    python benchmarks/ages.py --out benchmarks/ages.json        # 120 runs; an hour on 4 cores
"""

from __future__ import annotations

import argparse
import json
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gimbal.learning.method import Optimization
from gimbal.learning.proximal.base import AbstractAnchor
from gimbal.learning.proximal.behavior import Behavior
from gimbal.learning.proximal.recompute import Recompute
from gimbal.learning.proximal.sampling_version import SamplingVersion
from gimbal.objectives import TruncatedWeight
from gimbal.recipes.dcmdp import dcmdp
from gimbal.recipes.grpo import grpo
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

METHODS = ("grpo", "grpo-behavior", "grpo+tis", "dcmdp", "dcmdp+tis", "dcmdp-version")
AGES = (0, 1, 4, 16)
LAST = 10  # steps that the reward at the end is averaged over
COLUMNS = {
    "exam": "pass@1",
    "reward": "reward, last 10",
    "prob_diff": "mean |p - p'|",
    "ess_token": "ESS token",
    "ess_sequence": "ESS sequence",
    "grad_norm": "largest gradient norm",
}


def run_of(method: str, age: int, seed: int, steps: int, learning_rate: float) -> Run:
    base = dcmdp() if method.startswith("dcmdp") else grpo()
    return replace(
        base,
        correction=TruncatedWeight() if method.endswith("+tis") else None,
        anchor=_anchor(method, age),
        max_staleness=age,
        ahead="full",
        steps=steps,
        seed=seed,
        threads=1,
        optimization=Optimization(learning_rate=learning_rate),
    )


def _anchor(method: str, age: int) -> AbstractAnchor:
    """-behavior: the clip sees the whole ratio to the sampler. -version: it sees the staleness, and the price the rounding alone."""
    if method.endswith("-behavior"):
        return Behavior()
    return SamplingVersion(window=age) if method.endswith("-version") else Recompute()


def measure(cell: tuple[str, int, int, int, float]) -> dict[str, Any]:
    method, age, seed, steps, learning_rate = cell
    trainer = Trainer(run_of(*cell))
    try:
        rows = [trainer.advance()[0] for _ in range(steps)]
        exam = trainer.examine()
    finally:
        trainer.close()

    def mean(name: str, of: list[dict[str, float]] = rows) -> float | None:
        return (
            statistics.fmean(row[name] for row in of) if name in rows[0] else None
        )  # the anchor Behavior leaves it unmeasured

    return {
        "method": method,
        "age": age,
        "seed": seed,
        "steps": steps,
        "learning_rate": learning_rate,
        "ages_seen": sorted({row["staleness/max"] for row in rows}),
        "exam": exam.pass_at[1],
        "reward": mean("reward/mean", rows[-LAST:]),
        "prob_diff": mean("mismatch/prob_diff"),
        "ess_token": mean("mismatch/ess_token"),
        "ess_sequence": mean("mismatch/ess_sequence"),
        "grad_norm": max(row["grad_norm"] for row in rows),
        "curve": [round(row["reward/mean"], 4) for row in rows],
    }


def table(runs: list[dict[str, Any]]) -> str:
    """Medians over seeds, with the least and the most."""
    lines = ["| method | age | " + " | ".join(COLUMNS.values()) + " |", "| --- " * (len(COLUMNS) + 2) + "|"]
    for method, age in product(METHODS, AGES):
        chosen = [run for run in runs if (run["method"], run["age"]) == (method, age)]
        if chosen:
            cells = ([run[name] for run in chosen] for name in COLUMNS)
            lines.append(f"| {method} | {age} | " + " | ".join(_spread(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _spread(cell: list[float | None]) -> str:
    known = [value for value in cell if value is not None]
    return f"{statistics.median(known):.3g} ({min(known):.3g}..{max(known):.3g})" if known else "not measured"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--processes", type=int, default=3, help="runs at a time, one thread each")
    parser.add_argument("--out", type=Path, help="JSON file to write, and to go on from if it is there")
    words = parser.parse_args()
    grid = [(m, a, s, words.steps, words.learning_rate) for s, m, a in product(range(words.seeds), METHODS, AGES)]
    runs = json.loads(words.out.read_text()) if words.out and words.out.exists() else []
    done = {(r["method"], r["age"], r["seed"], r["steps"], r["learning_rate"]) for r in runs}
    with ProcessPoolExecutor(words.processes, mp_context=get_context("spawn")) as pool:
        for run in pool.map(measure, [cell for cell in grid if cell not in done]):
            runs.append(run)
            print(f"{run['method']} age {run['age']} seed {run['seed']}: {run['exam']:.3f}", flush=True)
            if words.out:
                words.out.write_text(json.dumps(runs, indent=1) + "\n")
    print(table(runs))


if __name__ == "__main__":
    main()
