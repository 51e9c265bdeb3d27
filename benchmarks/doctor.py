"""Whether ``gimbal doctor`` is right: runs made sick by settings or by injected faults, and healthy runs of many recipes.

Every run is a real one, on one thread, judged by what it left on disk and nothing else: the doctor reads neither the faults of the
recipe nor what a fault wrote. What a run is, its outcome decides, by one rule for all (``state``): meant to be sick, it counts if it
ended worse than its healthy twin, the same recipe with the same seed and its own settings; meant to be healthy, if it learned. A sick
run is named rightly if the first cause is the one that made it sick; a healthy one if nothing at all is said of it.

    python benchmarks/doctor.py --out benchmarks/doctor.json      # about 180 runs; an hour and a half on one core

A directory of runs that is there already is judged anew by the rules of today. The cases are in sickness.py.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from sickness import FAULTS, HEALTHY, Case, draw

from gimbal import config
from gimbal.learning.learner import NotFinite
from gimbal.learning.weight_sync.proof import NotDelivered
from gimbal.report.doctor import NOTHING, diagnose
from gimbal.report.record import Change, Record
from gimbal.runtime.local import run_local
from gimbal.runtime.pipeline import Starved

# (what the runs are counted under, their seed): rules were made on the first draw, and final before the second was looked at; then
# changed on that, and final again before the third was looked at.
DRAWS: Sequence[tuple[str, int]] = (("first", 1), ("second", 2), ("third", 3))
# What was said of runs of the second draw by the rules it was held against, where today's say something else. They count as it was.
SAID = {
    ("rate x100 (cartpole)", 2): "dead gradient",
    ("rate /300 (pendulum)", 2): NOTHING,
    ("1 episode (pendulum)", 2): NOTHING,
    ("age 12 (clip_higher)", 2): NOTHING,
    ("r3l", 2): "mismatch",
    ("sgrpo", 2): "noisy reward",
}
NOT_RUN = "not run"
FAULTS_SEED = 30
CHANCE = 2.0  # standard errors from which a difference of two evaluations counts


@dataclass(frozen=True, kw_only=True)
class Job:
    case: Case
    seed: int
    set: str
    root: Path

    @property
    def directory(self) -> Path:
        return self.root / f"{_plain(self.case.name)}-{self.seed}"

    @property
    def twin(self) -> Path:
        """The healthy run of the same recipe and seed."""
        return self.root / f"{self.case.recipe}-{self.seed}"


def _plain(name: str) -> str:
    for character, other in ((" ", "_"), ("(", ""), (")", ""), ("/", "d"), (",", "")):
        name = name.replace(character, other)
    return name


def trained(job: Job) -> Path:
    """The directory of the run, trained unless it is there; a run that stops itself is a result."""
    case, directory = job.case, job.directory
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


def listed(root: Path) -> list[Job]:
    jobs = [Job(case=case, seed=seed, set=name, root=root) for name, seed in DRAWS for case in draw(seed)]
    return jobs + [Job(case=case, seed=FAULTS_SEED, set="faults", root=root) for case in FAULTS]


def train(root: Path, index: int) -> None:
    """In a process of its own: a case is made of functions, which cannot be sent to one, so it is told which one it is."""
    trained(listed(root)[index])


def state(job: Job, record: Record) -> str:
    """What became of the run, whatever it was meant to be: by its evaluation alone, of a healthy one by its score in training too.

    Of those meant to be sick: ``harmed`` or ``unharmed``. Of those meant to be healthy: ``learned``, ``still`` or ``fell``. A fault of
    the machinery is harm by itself.
    """
    learned = record.learned
    if job.case.expected != HEALTHY:
        if job.set == "faults" or record.stopped is not None:
            return "harmed"
        twin = Record(job.twin).learned
        assert learned is not None and twin is not None, job.directory
        error = math.hypot(learned.error or 0.0, twin.error or 0.0) / math.sqrt(2)  # theirs are of two evaluations each
        return "harmed" if twin.end.value - learned.end.value > CHANCE * error else "unharmed"
    if _beyond(learned, -1):
        return "fell"
    return "learned" if _beyond(learned, 1) or _beyond(record.reward, 1) else "still"


def _beyond(change: Change | None, sign: int) -> bool:
    return change is not None and sign * change.by > CHANCE * (change.error or 0.0)


def judged(job: Job) -> dict[str, Any]:
    who = {"case": job.case.name, "seed": job.seed, "set": job.set, "expected": job.case.expected}
    needed = [job.directory] if job.set == "faults" else [job.directory, job.twin]
    if not all((directory / "done").exists() for directory in needed):
        return who | {"found": "", "state": NOT_RUN}
    diagnosis, record = diagnose(job.directory), Record(job.directory)
    exam = record.learned
    now = diagnosis.cause or diagnosis.name
    return who | {
        "found": SAID.get((job.case.name, job.seed), now),
        "now": now,
        "state": state(job, record),
        "outcome": diagnosis.outcomes[0].name if diagnosis.outcomes else "",
        "before": exam and round(exam.start.value, 3),
        "after": exam and round(exam.end.value, 3),
    }


def counted(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of each set: harmed runs and those named rightly, runs that learned and those on which it is silent; and all the others."""
    found: dict[str, Any] = {}
    for name in (*dict(DRAWS), "faults"):
        of = [run for run in runs if run["set"] == name]
        for kind, right in (
            ("harmed", "right"),
            ("unharmed", "silent"),
            ("learned", "silent"),
            ("still", "silent"),
            ("fell", "silent"),
        ):
            those = [run for run in of if run["state"] == kind]
            if those:
                well = sum(run["found"] == (run["expected"] if right == "right" else NOTHING) for run in those)
                found[f"{name} {kind}"] = len(those)
                found[f"{name} {kind} {right}"] = well
        if missing := sum(run["state"] == NOT_RUN for run in of):
            found[f"{name} {NOT_RUN}"] = missing
    return found


def text(runs: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for run in runs:
        wanted = run["expected"] if run["state"] == "harmed" else NOTHING
        if run["state"] != NOT_RUN and run["found"] != wanted:
            lines.append(
                f"{run['set']}: {run['case']}, seed {run['seed']} ({run['state']}): {run['found']} instead of {wanted}"
            )
    return "\n".join([*lines, *(f"{name}: {count}" for name, count in counted(runs).items())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--processes", type=int, default=1, help="runs at a time, one thread each; 0 trains none that is not there"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs/doctor"), help="where they are kept, and gone on from")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    words = parser.parse_args()
    jobs = listed(words.runs)
    if words.processes:
        with ProcessPoolExecutor(words.processes, mp_context=get_context("spawn")) as pool:
            list(pool.map(train, [words.runs] * len(jobs), range(len(jobs))))
    runs = [judged(job) for job in jobs]
    print(text(runs))
    if words.out:
        report = {"cores": os.cpu_count(), **counted(runs), "runs": runs}
        words.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
