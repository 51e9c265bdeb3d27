"""Bounded asynchrony beside synchrony on Ray actors, with tools that sometimes take long; and faults by the dozen.

    python benchmarks/decoupled.py speed --seeds 5 --out benchmarks/decoupled.json
    python benchmarks/decoupled.py faults --count 50

speed   Both sides: gimbal-tiny, the demo's tasks and reward, equal steps, batch, workers and seeds. After its last token each rollout
        waits for a simulated tool: a lognormal time, capped, drawn from (seed, task, sample), so equal for both. Nothing is computed
        meanwhile, and other rollouts go on. The sides differ in max_staleness only, and take turns. A worker is idle while it
        neither draws nor loads and has nothing in flight; ``idle_or_only_tools`` also counts while all of that waits for tools.
faults  A run over sparse packets whose workers and reward workers are killed at random moments, added and removed. Afterwards the
        account: every rollout that was dispatched was trained on, dropped under a reason, or is still there; no decision older than
        max_staleness.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from gimbal import config
from gimbal.engines.base import AbstractEngine, AbstractEngineAround, AbstractEngineSpec, Finished, Request
from gimbal.engines.native import Native
from gimbal.environments.demonstrations import held_out_tasks
from gimbal.learning.weight_sync.sparse import Sparse
from gimbal.ops import philox
from gimbal.policies.base import AbstractPolicy
from gimbal.recipes.core.demo import demo
from gimbal.records import Rollout
from gimbal.report.arms import arms
from gimbal.report.compare import compare
from gimbal.report.files import JsonLines
from gimbal.runtime import fleet
from gimbal.runtime.local import Trainer, run_local
from gimbal.runtime.pool import PoolEngine, PoolScorer
from gimbal.runtime.ray import Ray
from gimbal.runtime.run import HeldOut, Run

PAUSE = 0.005  # seconds of sleep where all that is left is waiting


@dataclass(frozen=True, kw_only=True)
class SlowTool(AbstractEngineSpec):
    """``engine``, each of whose rollouts ends with a call of ``median`` * exp(``sigma`` z) seconds, at most ``longest``.

    ``log`` names a file to which each worker writes, whenever it loads weights, what it has done so far (``Usage``).
    """

    engine: AbstractEngineSpec = Native(precision="int8")
    median: float = 0.4
    sigma: float = 1.2
    longest: float = 8.0
    log: str = ""

    def start(self, policy: AbstractPolicy) -> SlowToolEngine:
        return SlowToolEngine(self, self.engine.start(policy))


@dataclass(kw_only=True)
class Usage:
    """What a worker has done since its start. ``drawing`` + ``loading`` + ``waiting`` seconds are all that it was not idle in."""

    at: float = 0.0  # seconds on the machine's clock
    drawing: float = 0.0
    loading: float = 0.0
    waiting: float = 0.0  # rollouts in flight, all of them with a tool
    steps: int = 0  # decode steps
    rows: int = 0  # rollouts in them
    starts: int = 0


class SlowToolEngine(AbstractEngineAround):
    """Rollouts wait side by side; the engine inside goes on with the others. Not to be resumed: nothing that waits is saved."""

    def __init__(self, spec: SlowTool, inner: AbstractEngine) -> None:
        self.spec, self.inner, self.usage = spec, inner, Usage()
        self.slots = spec.engine.slots if isinstance(spec.engine, Native) else 1
        self.seeds: dict[tuple[int, int], Request] = {}
        self.waiting: dict[tuple[int, int], tuple[float, Finished]] = {}

    @property
    def in_flight(self) -> int:
        return self.inner.in_flight + len(self.waiting)

    def submit(self, request: Request) -> None:
        self.seeds[request.key] = request
        self.usage.starts += 1
        self.inner.submit(request)

    def step(self) -> list[Finished]:
        start, rows = time.monotonic(), min(self.slots, self.inner.in_flight)
        if rows:
            for item in self.inner.step():
                request = self.seeds.pop(item.key)
                z = philox(request.seed, f"tool {request.task.id}", request.sample).standard_normal()
                seconds = min(self.spec.longest, self.spec.median * math.exp(self.spec.sigma * z))
                self.waiting[item.key] = (time.monotonic() + seconds, item)
            self.usage.drawing += time.monotonic() - start
            self.usage.steps += 1
            self.usage.rows += rows
        elif self.waiting:
            time.sleep(PAUSE)
            self.usage.waiting += time.monotonic() - start
        now = time.monotonic()
        back = [key for key, (due, _) in self.waiting.items() if due <= now]
        return [self.waiting.pop(key)[1] for key in back]

    def cancel(self, key: tuple[int, int]) -> Rollout | None:
        self.seeds.pop(key, None)
        held = self.waiting.pop(key, None)
        return held[1].rollout if held else self.inner.cancel(key)

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        start = time.monotonic()
        self.inner.load(version, state)
        self.usage.at = time.monotonic()
        self.usage.loading += self.usage.at - start
        if self.spec.log:
            with open(self.spec.log, "a", encoding="utf-8") as file:
                print(json.dumps({"worker": os.getpid(), "version": version} | asdict(self.usage)), file=file)


def run_of(seed: int, k: int, steps: int, workers: int, tool: SlowTool | None = None) -> Run:
    return replace(
        demo(),
        engine=tool or SlowTool(),
        prompts_per_step=16,
        num_generations=8,
        max_staleness=k,
        filters=(),
        held_out=HeldOut(tasks=held_out_tasks(size=128), samples=4, engine=Native(precision="int8")),
        steps=steps,
        seed=seed,
        threads=1,
        record_every=0,
        runtime=Ray(workers=workers, scorers=1, cpus=0.5),
    )


def trained(run: Run, directory: Path, log: Path) -> list[dict[str, Any]]:
    """Do the run as `gimbal train` does; its metrics step by step. The recipe is saved without the log: runs are repetitions."""
    directory.mkdir(parents=True)
    config.save(config.dump(run, "decoupled"), directory / config.RECIPE_FILE)
    assert isinstance(run.engine, SlowTool)
    run_local(replace(run, engine=replace(run.engine, log=str(log))), directory)
    return list(JsonLines(directory / "metrics.jsonl").read())


def usage(log: Path, warm: int) -> list[tuple[float, Usage]]:
    """Of each worker the seconds from its load of version ``warm`` to its last, and what it did in them."""
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in JsonLines(log).read():
        found[line.pop("worker")] += [line] if line.pop("version") >= warm else []
    ends = [(Usage(**lines[0]), Usage(**lines[-1])) for lines in found.values()]
    return [(b.at - a.at, Usage(**{k: v - vars(a)[k] for k, v in vars(b).items()})) for a, b in ends]


def timed(run: Run, directory: Path, warm: int) -> dict[str, float]:
    """Figures of the steps after the first ``warm``, in which the pipeline fills and processes start."""
    log = directory.with_suffix(".log")
    rows = trained(run, directory, log)
    late, seconds = rows[warm:], sum(row["time/step"] for row in rows[warm:])
    used = usage(log, warm)
    wall = sum(span for span, _ in used)
    drawing, loading, waiting = (sum(vars(of)[name] for _, of in used) for name in ("drawing", "loading", "waiting"))
    return {
        "rollouts_per_s": len(late) * run.prompts_per_step * run.num_generations / seconds,
        "seconds_per_step": seconds / len(late),
        "idle": 1 - (drawing + loading + waiting) / wall,
        "idle_or_only_tools": 1 - (drawing + loading) / wall,
        "outside_calls": statistics.mean(row["pool/idle_frac"] for row in late),
        "training": sum(row["time/train"] for row in late) / seconds,
        "sync_and_proof": sum(row["time/sync"] for row in late) / seconds,
        "age": statistics.mean(row["staleness/mean"] for row in late),
        "max_age": max(row["staleness/max"] for row in rows),
        "reward_first": statistics.mean(row["reward/mean"] for row in rows[:4]),
        "reward_last": statistics.mean(row["reward/mean"] for row in rows[-4:]),
    }


def interval(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.3g}"
    return f"{statistics.mean(values):.3g} +- {1.96 * statistics.stdev(values) / len(values) ** 0.5:.2g}"


def speed(options: argparse.Namespace) -> dict[str, Any]:
    """Both sides in turns; then the exams of all runs by the library's own comparison."""
    sides = {"sync": 0, "async": options.staleness}
    tool = SlowTool(
        engine=Native(slots=options.slots, precision="int8"), median=options.median, longest=options.longest
    )
    runs: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        for arm, k in sides.items():
            run = run_of(seed, k, options.steps, options.workers, tool)
            runs.append({"arm": arm, "seed": seed} | timed(run, options.runs / f"{arm}-{seed}", options.warm))
            print(json.dumps(runs[-1]), flush=True)
    return concluded(runs, options)


def concluded(runs: list[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """The table of both sides, and the record."""
    sides = list(dict.fromkeys(run["arm"] for run in runs))
    by = {name: [run for run in runs if run["arm"] == name] for name in sides}
    ratio = [b["rollouts_per_s"] / a["rollouts_per_s"] for a, b in zip(*by.values(), strict=True)]
    for name in list(runs[0])[2:]:
        print(f"{name:>18}   " + "   ".join(f"{a}: {interval([run[name] for run in of])}" for a, of in by.items()))
    print(f"{'rollouts/s, ratio':>18}   {interval(ratio)}")
    found = compare(arms([(arm, [options.runs / f"{arm}-{seed}" for seed in range(options.seeds)]) for arm in sides]))
    print(found)
    pair = found.pairs[0]
    return {
        "runs": runs,
        "options": {k: str(v) for k, v in vars(options).items() if k not in ("out", "runs", "what")},
        "ratio": interval(ratio),
        "exam": {
            "metric": found.metric,
            **{f"{arm.name}_iqm": arm.score.value for arm in found.arms},
            "difference": pair.difference.value,
            "difference_low": pair.difference.low,
            "difference_high": pair.difference.high,
            "p": pair.p,
            "verdict": found.verdict,
        },
    }


def faults(options: argparse.Namespace) -> dict[str, Any]:
    """Kills until ``count`` have been injected, with the run going on; then the account."""
    import ray

    fleet.LOSSES_IN_A_ROW = 10**6
    k, draw, injected = options.staleness, random.Random(0), Counter[str]()
    quick = SlowTool(median=0.05, sigma=1.0, longest=1.0)
    run = replace(
        run_of(0, k, 10**6, options.workers), engine=quick, prompts_per_step=4, num_generations=4, sync=Sparse()
    )
    trainer, consumed, oldest = Trainer(run, note=print), Counter[int](), 0.0
    trainer.begin()
    engine, scorer = trainer.host.engine, trainer.host.scorer
    assert isinstance(engine, PoolEngine) and isinstance(scorer, PoolScorer)
    over = threading.Event()

    def saboteur() -> None:
        while not over.wait(draw.uniform(0.2, 2 * options.every)):
            if injected.total() < options.count and (kind := _fault(engine, scorer, draw, ray)):
                injected[kind] += 1

    thread = threading.Thread(target=saboteur, daemon=True)
    thread.start()
    start, longest = time.perf_counter(), 0.0
    try:
        while injected.total() < options.count:
            began = time.perf_counter()
            metrics, groups, _ = trainer.advance()
            longest = max(longest, time.perf_counter() - began)
            oldest = max(oldest, metrics["staleness/max"])
            for group in groups:
                consumed[group.index] += 1
                assert sorted(rollout.sample for rollout in group.rollouts) == list(range(4))
    finally:
        over.set()
        thread.join()
        pipeline = trainer.pipeline
        trainer.close()
    gone = sum(count for reason, count in pipeline.drops.items() if "/" not in reason)
    return {
        "faults": dict(injected),
        "seconds": time.perf_counter() - start,
        "steps": trainer.learner.version,
        "groups_trained_on": len(consumed),
        "groups_twice": sum(count > 1 for count in consumed.values()),
        "groups_lost": pipeline.dispatched - len(consumed) - len(pipeline.outstanding) - gone,
        "groups_dropped": gone,
        "rollouts_repeated": engine.ledger.repeated,
        "oldest": oldest,
        "allowed": k,
        "longest_step_seconds": longest,
    }


def _fault(engine: PoolEngine, scorer: PoolScorer, draw: random.Random, ray: Any) -> str:
    """One fault; says which, "" if there was nothing to hurt."""
    kind = draw.choice(["worker killed"] * 6 + ["reward worker killed"] * 2 + ["worker added", "worker removed"])
    pool = scorer.fleet if kind == "reward worker killed" else engine.fleet
    with pool.changed:
        up = [number for number, member in pool.members.items() if member.up]
        if kind == "worker added" or not up or (kind == "worker removed" and len(up) == 1):
            if kind != "worker added" or len(pool.members) > 3:
                return ""
            pool.add()
            return kind
        number = draw.choice(up)
        if kind == "worker removed":
            pool.remove(number)
        else:
            ray.kill(pool.members[number].handle)
    return kind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "faults"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=18)
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--staleness", type=int, default=4)
    parser.add_argument("--slots", type=int, default=4, help="rollouts that a worker draws at a time")
    parser.add_argument("--median", type=float, default=0.4, help="seconds of a tool")
    parser.add_argument("--longest", type=float, default=3.0)
    parser.add_argument("--runs", type=Path, default=Path("runs/decoupled"), help="new folder for the runs of `speed`")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between faults, on average")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    import ray

    ray.init("local", num_cpus=2, object_store_memory=200_000_000, include_dashboard=False, log_to_driver=False)
    try:
        found = speed(options) if options.what == "speed" else faults(options)
    finally:
        ray.shutdown()
    print(json.dumps(found, default=str) if options.what == "faults" else "")
    if options.out:
        options.out.write_text(json.dumps(found, indent=1, default=str))


if __name__ == "__main__":
    main()
