"""Makes the reference curves that gimbal ships: the main recipes over seeds, each a real run on one thread, as bands.

python benchmarks/reference.py                     # src/gimbal/report/reference.json; 25 runs of 40 steps, an hour on 2 cores
python benchmarks/reference.py --recipes grpo      # this one anew, the others as they are
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

from gimbal import recipes
from gimbal.report.files import JsonLines
from gimbal.report.reference import FILE, banded, measured
from gimbal.runtime.local import run_local

RECIPES = ("demo", "grpo", "dr_grpo", "gspo", "dcmdp")


def trained(job: tuple[str, int, int, Path]) -> Path:
    recipe, seed, steps, root = job
    directory = root / f"{recipe}-{seed}"
    metrics = directory / "metrics.jsonl"
    if len(JsonLines(metrics).read()) < steps:
        metrics.unlink(missing_ok=True)
        run = replace(recipes.load(recipe), held_out=None, steps=steps, seed=seed, threads=1, checkpoint_every=1000)
        run_local(run, directory, name=recipe)
    return metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", nargs="*", default=list(RECIPES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--processes", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/reference"), help="where they are kept, and gone on from"
    )
    words = parser.parse_args()
    bands = {band["recipe"]: band for band in (json.loads(FILE.read_text()) if FILE.is_file() else [])}
    jobs = [(recipe, seed, words.steps, words.runs) for recipe in words.recipes for seed in range(words.seeds)]
    with ProcessPoolExecutor(words.processes, mp_context=get_context("spawn")) as pool:
        files = dict(zip(jobs, pool.map(trained, jobs), strict=True))
    for recipe in words.recipes:
        rows = [JsonLines(file).read()[: words.steps] for job, file in files.items() if job[0] == recipe]
        run = measured(recipes.load(recipe))
        bands[recipe] = {"recipe": recipe, "seeds": words.seeds, "run": run, "metrics": banded(rows)}
    FILE.write_text("[\n" + ",\n".join(json.dumps(band) for band in bands.values()) + "\n]\n")


if __name__ == "__main__":
    main()
