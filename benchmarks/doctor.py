"""Whether ``gimbal doctor`` is right: runs made sick by settings or by injected faults, and healthy runs of many recipes.

Every run is a real one, on one thread, judged by what it left on disk and nothing else: the doctor reads neither the faults of the
recipe nor what a fault wrote. A sick run is named rightly if the first cause is the one that made it sick; a healthy one if nothing at
all is said of it. Rules and limits were made on the runs that are called developed; the others were judged once they stood.

    python benchmarks/doctor.py --out benchmarks/doctor.json      # about 130 runs; half an hour on 2 cores

A directory of runs that is there already is judged anew by the rules of today. The cases are in sickness.py.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from sickness import CASES, DEVELOPED, FAULTS, FRESH, HEALTHY, WELL, WELL_FRESH, Case

from gimbal import config
from gimbal.learning.learner import NotFinite
from gimbal.learning.weight_sync.proof import NotDelivered
from gimbal.report.doctor import NOTHING, examine
from gimbal.report.record import Record
from gimbal.runtime.local import run_local
from gimbal.runtime.pipeline import Starved

# What was said of fresh runs before rules were mended on them. They count as it was: these rules are no longer new to those runs.
MENDED = {
    ("weight -1 (dr_grpo)", 10): "reward hacking",
    ("rate /100 (pendulum)", 10): NOTHING,
    ("rate /100 (routing_replay)", 10): "critic",
    ("hard (dr_grpo)", 10): NOTHING,
    ("scale (cartpole)", 10): NOTHING,
    ("echo", 10): "dead gradient",
}
# (what the runs are counted under, their cases, their seeds).
SETS: Sequence[tuple[str, Sequence[Case], Sequence[int]]] = (
    ("developed", DEVELOPED, (0,)),
    ("developed", WELL, (0,)),
    ("fresh", FRESH, (10,)),
    ("fresh", [case for case in WELL if case.seeds > 1], (10, 11)),
    ("fresh", WELL_FRESH, (10,)),
    ("mended", [*FRESH[::2], *(case for case in FRESH[1::2] if (case.name, 10) in MENDED)], (20,)),
    ("mended", WELL_FRESH[::4], (20,)),
    ("faults", FAULTS, (10,)),
)


@dataclass(frozen=True, kw_only=True)
class Job:
    case: str
    seed: int
    set: str
    root: Path

    @property
    def directory(self) -> Path:
        name = self.case
        for character, other in ((" ", "_"), ("(", ""), (")", ""), ("/", "d"), (",", "")):
            name = name.replace(character, other)
        return self.root / f"{name}-{self.seed}"


def trained(job: Job) -> Path:
    """The directory of the run, trained unless it is there; a run that stops itself is a result."""
    case, directory = CASES[job.case], job.directory
    if not (directory / "done").exists():
        run = case.run(job.seed)
        directory.mkdir(parents=True, exist_ok=True)
        config.save(config.dump(run, case.recipe), directory / config.RECIPE_FILE)
        try:
            run_local(run, directory, name=case.recipe)
        except (NotDelivered, NotFinite, Starved) as error:
            print(f"{directory.name}: {error}", flush=True)
        (directory / "done").touch()
    return directory


def judged(job: Job, directory: Path) -> dict[str, Any]:
    diagnosis, record = examine(directory), Record(directory)
    exam = record.learned
    # Meant to be sick, but what was learned is beyond chance: what does no harm is no sickness, and is counted by itself.
    unharmed = CASES[job.case].expected != HEALTHY and exam is not None and not record.fallen and exam.surely_rose
    return {
        "case": job.case,
        "seed": job.seed,
        "set": job.set,
        "expected": CASES[job.case].expected,
        "found": MENDED.get((job.case, job.seed), diagnosis.cause or diagnosis.name),
        "unharmed": unharmed,
        "outcome": diagnosis.outcomes[0].name if diagnosis.outcomes else "",
        "before": exam and round(exam.start.value, 3),
        "after": exam and round(exam.end.value, 3),
    }


def counted(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of each set and of all: sick runs and those named rightly, healthy runs and those on which it is silent."""
    found: dict[str, Any] = {}
    for name in ("", "developed", "fresh", "mended", "faults"):
        of = [run for run in runs if name in ("", run["set"])]
        sick = [run for run in of if run["expected"] != HEALTHY and not run["unharmed"]]
        well = [run for run in of if run["expected"] == HEALTHY]
        named = sum(run["found"] == run["expected"] for run in sick)
        silent = sum(run["found"] == NOTHING for run in well)
        figures = {"sick": len(sick), "right": named} if sick else {}
        figures |= {"healthy": len(well), "silent": silent} if well else {}
        figures |= {"unharmed": harmless} if (harmless := sum(run["unharmed"] for run in of)) else {}
        found |= {f"{name} {what}".strip(): count for what, count in figures.items()}
    return found


def text(runs: Sequence[dict[str, Any]]) -> str:
    lines = []
    for run in runs:
        wanted = run["expected"] or NOTHING
        if run["found"] != wanted and not run["unharmed"]:
            lines.append(f"{run['set']}: {run['case']}, seed {run['seed']}: {run['found']} instead of {wanted}")
    return "\n".join([*lines, *(f"{name}: {count}" for name, count in counted(runs).items())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--processes", type=int, default=2, help="runs at a time, one thread each; 0 trains none that is not there"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs/doctor"), help="where they are kept, and gone on from")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    words = parser.parse_args()
    jobs = [
        Job(case=case.name, seed=seed, set=name, root=words.runs)
        for name, cases, seeds in SETS
        for seed in seeds
        for case in cases
    ]
    if words.processes:
        with ProcessPoolExecutor(words.processes, mp_context=get_context("spawn")) as pool:
            list(pool.map(trained, jobs))
    runs = [judged(job, job.directory) for job in jobs if (job.directory / "done").exists()]
    print(text(runs))
    if words.out:
        report = {"cores": os.cpu_count(), **counted(runs), "runs": runs}
        words.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
