"""Whether ``gimbal doctor`` is right: runs made sick on purpose, each sickness over seeds, and healthy ones of several recipes.

Every run is a real one, of at most 12 steps on one thread, judged by what it left on disk and nothing else: the doctor reads neither
the faults of the recipe nor what a fault wrote. Written: each run with its expected and its found signature, and the counts.

    python benchmarks/doctor.py --out benchmarks/doctor.json      # about 80 runs; 20 minutes on 2 cores

A directory of runs that is there already is judged anew by the rules of today.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gimbal import config
from gimbal.engines.native import Native
from gimbal.learning.method import Optimization
from gimbal.learning.weight_sync.proof import NotDelivered
from gimbal.objectives.entropy_bonus import EntropyBonus
from gimbal.policies.token import CausalLM
from gimbal.recipes.cispo import cispo
from gimbal.recipes.clip_higher import clip_higher
from gimbal.recipes.dcmdp import dcmdp
from gimbal.recipes.demo import demo
from gimbal.recipes.dr_grpo import dr_grpo
from gimbal.recipes.grpo import grpo
from gimbal.recipes.gspo import gspo
from gimbal.recipes.rloo import rloo
from gimbal.recipes.tis import tis
from gimbal.runtime.faults import Faults
from gimbal.runtime.local import run_local
from gimbal.runtime.pipeline import Starved
from gimbal.runtime.run import Run

STEPS = 12
HEALTHY = ""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kind of run: what makes it sick, and the name of the sickness ("" for a healthy one)."""

    name: str
    expected: str
    recipe: Callable[[], Run]
    change: Callable[[Run], Run]
    steps: int = STEPS


def faulty(
    name: str, expected: str, recipe: Callable[[], Run] = grpo, *, rate: float = 1e-4, steps: int = STEPS, **knobs: Any
) -> Case:
    def change(run: Run) -> Run:
        return replace(run, faults=Faults(**knobs), optimization=Optimization(learning_rate=rate))

    return Case(name=name, expected=expected, recipe=recipe, change=change, steps=steps)


def changed(name: str, expected: str, recipe: Callable[[], Run], **fields: Any) -> Case:
    return Case(name=name, expected=expected, recipe=recipe, change=lambda run: replace(run, **fields))


FAST = Optimization(learning_rate=5e-4)


def hard(run: Run) -> Run:
    """Sums too long for gimbal-tiny, with a price on entropy: it becomes sure of itself and learns nothing."""
    tasks = replace(run.tasks, parameters={**run.tasks.parameters, "min_terms": 5, "max_terms": 5})
    return replace(run, tasks=tasks, regularisers=(EntropyBonus(coef=-2.0),), optimization=FAST)


def unlearned(run: Run) -> Run:
    """A policy that writes at random, paid for length: it learns never to end."""
    paid, fast = Faults(reward_length=0.1), Optimization(learning_rate=1e-3)
    return replace(run, policy=CausalLM(fresh=True), faults=paid, optimization=fast)


def slow(run: Run) -> Run:
    return replace(run, faults=Faults(slow_workers=0.5, slow_steps=400), max_staleness=8, optimization=FAST)


SICK = (
    faulty("log-prob noise", "mismatch", steps=6, logprob_noise=0.5),
    faulty("int4 weights", "mismatch", steps=6, weight_precision="int4"),
    faulty("temperature too high", "mismatch", steps=6, sampler_temperature=1.5),
    faulty("temperature too low", "mismatch", steps=6, sampler_temperature=0.6),
    faulty("truncated support", "mismatch", steps=6, sampler_top_p=0.8),
    faulty("token drift", "mismatch", steps=6, token_drift=0.03),
    faulty("lost syncs, proved", "no delivery", steps=6, lost_syncs=1.0),
    faulty("lost syncs", "no delivery", steps=6, lost_syncs=0.5, unproved=True),
    faulty("stale weights", "no delivery", steps=8, stale_weights=4, unproved=True),
    faulty("half-swapped weights", "no delivery", steps=8, half_swapped=0.5, unproved=True),
    Case(name="slow workers", expected="staleness", recipe=grpo, change=slow),
    changed("old data", "staleness", grpo, max_staleness=8, ahead="full", optimization=FAST),
    faulty("dropped samples", "lost samples", steps=6, dropped_samples=0.1),
    faulty("doubled samples", "lost samples", demo, steps=6, doubled_samples=0.1),
    faulty("reward noise", "noisy reward", steps=6, reward_noise=0.3),
    faulty("verdicts turned", "noisy reward", demo, steps=6, reward_flip=0.2),
    faulty("blind reward", "dead gradient", steps=8, reward_blind=1.0),
    faulty("blind reward, filtered", "filter starvation", demo, steps=3, reward_blind=0.85),
    faulty("shortness paid", "reward hacking", rate=5e-4, reward_length=-0.1),
    Case(name="length paid", expected="length run-away", recipe=grpo, change=unlearned),
    Case(name="entropy priced", expected="entropy collapse", recipe=grpo, change=hard),
)
# Doses of a tenth or so of those above: where the doctor falls silent. Reported, and counted among neither.
FAINT = (
    faulty("log-prob noise, faint", "mismatch", steps=6, logprob_noise=0.03),
    faulty("temperature, faint", "mismatch", steps=6, sampler_temperature=1.1),
    faulty("truncated support, faint", "mismatch", steps=6, sampler_top_p=0.97),
    faulty("token drift, faint", "mismatch", steps=6, token_drift=0.001),
    faulty("lost syncs, faint", "no delivery", steps=6, lost_syncs=0.2, unproved=True),
    faulty("half-swapped weights, faint", "no delivery", steps=8, half_swapped=0.05, unproved=True),
    faulty("dropped samples, faint", "lost samples", steps=6, dropped_samples=0.005),
    faulty("reward noise, faint", "noisy reward", steps=6, reward_noise=0.01),
    faulty("verdicts turned, faint", "noisy reward", demo, steps=6, reward_flip=0.02),
    faulty("blind reward, faint", "dead gradient", steps=8, reward_blind=0.5),
    faulty("shortness paid, faint", "reward hacking", reward_length=-0.01),
)
# The last of each: how many seeds.
WELL = (
    (changed("demo", HEALTHY, demo), 5),
    (changed("grpo", HEALTHY, grpo), 4),
    (changed("grpo, bfloat16", HEALTHY, grpo, engine=Native(slots=128, precision="bfloat16")), 2),
    (changed("grpo, synchronous", HEALTHY, grpo, max_staleness=0), 1),
    (changed("dr_grpo", HEALTHY, dr_grpo), 1),
    (changed("clip_higher", HEALTHY, clip_higher), 1),
    (changed("tis", HEALTHY, tis), 1),
    (changed("cispo", HEALTHY, cispo), 1),
    (changed("gspo", HEALTHY, gspo), 1),
    (changed("rloo", HEALTHY, rloo), 2),
    (changed("dcmdp", HEALTHY, dcmdp), 1),
)
CASES = {case.name: case for case in (*SICK, *FAINT, *(case for case, _ in WELL))}


def run_of(case: Case, seed: int) -> Run:
    run = case.change(case.recipe())
    return replace(run, held_out=None, steps=case.steps, seed=seed, threads=1, checkpoint_every=1000, record_every=3)


def trained(job: tuple[str, int, Path]) -> Path:
    """The directory of the run, trained unless it is there; a run that stops itself is a result."""
    name, seed, root = job
    run = run_of(CASES[name], seed)
    directory = root / f"{name.replace(', ', '-').replace(' ', '_')}-{seed}"
    if not (directory / "done").exists():
        directory.mkdir(parents=True, exist_ok=True)
        config.save(config.dump(run, CASES[name].recipe.__name__), directory / config.RECIPE_FILE)
        try:
            run_local(run, directory, name=CASES[name].recipe.__name__)
        except (NotDelivered, Starved) as error:
            print(f"{directory.name}: {error}", flush=True)
        (directory / "done").touch()
    return directory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="of each sickness")
    parser.add_argument(
        "--first", type=int, default=0, help="the first seed; other seeds than those the limits were set on"
    )
    parser.add_argument("--processes", type=int, default=2, help="runs at a time, one thread each")
    parser.add_argument("--runs", type=Path, default=Path("runs/doctor"), help="where they are kept, and gone on from")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    words = parser.parse_args()
    jobs = [(case.name, words.first + seed, words.runs) for seed in range(words.seeds) for case in SICK]
    jobs += [(case.name, words.first, words.runs) for case in FAINT]
    jobs += [(case.name, words.first + seed, words.runs) for case, seeds in WELL for seed in range(seeds)]
    with ProcessPoolExecutor(words.processes, mp_context=get_context("spawn")) as pool:
        directories = list(pool.map(trained, jobs))
    report = judged(jobs, directories)
    print(text(report))
    if words.out:
        words.out.write_text(json.dumps(report, indent=1) + "\n")


def judged(jobs: list[tuple[str, int, Path]], directories: list[Path]) -> dict[str, Any]:
    from gimbal.report.doctor import examine

    runs = []
    for (name, seed, _), directory in zip(jobs, directories, strict=True):
        diagnosis = examine(directory)
        runs.append({"case": name, "seed": seed, "expected": CASES[name].expected, "found": diagnosis.name})
    faint = [run for run in runs if run["case"] in {case.name for case in FAINT}]
    sick = [run for run in runs if run["expected"] != HEALTHY and run not in faint]
    well = [run for run in runs if run["expected"] == HEALTHY]
    return {
        "cores": os.cpu_count(),
        "steps": STEPS,
        "sick": len(sick),
        "right": sum(run["found"] == run["expected"] for run in sick),
        "healthy": len(well),
        "faint": len(faint),
        "faint_named": sum(run["found"] == run["expected"] for run in faint),
        "silent": sum(run["found"] == "nothing wrong" for run in well),
        "runs": runs,
    }


def text(report: dict[str, Any]) -> str:
    lines = []
    for run in report["runs"]:
        wanted = run["expected"] or "nothing wrong"
        if run["found"] != wanted:
            lines.append(f"{run['case']}, seed {run['seed']}: {run['found']} instead of {wanted}")
    lines.append(
        f"right on {report['right']} of {report['sick']} sick runs, silent on {report['silent']} of {report['healthy']}, "
        f"names {report['faint_named']} of {report['faint']} faint doses"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
