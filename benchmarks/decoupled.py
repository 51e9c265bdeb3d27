"""Bounded asynchrony beside synchrony on Ray actors, with tools that sometimes take long; and faults by the dozen.

    python benchmarks/decoupled.py speed --seeds 5 --steps 40 --out benchmarks/decoupled.json
    python benchmarks/decoupled.py faults --count 50

speed   Both sides: gimbal-tiny, the demo's tasks and reward, equal steps, batch, workers and seeds. After its last token each rollout
        waits for a simulated tool: a lognormal time, capped, drawn from (seed, task, sample), so equal for both. Nothing is computed
        meanwhile, and other rollouts go on. The sides differ in max_staleness only, and take turns.
faults  A run whose workers and reward workers are killed at random moments, added and removed. Afterwards the account: every rollout
        that was dispatched was trained on, dropped under a reason, or is still there; no decision older than max_staleness.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from gimbal.engines.base import AbstractEngine, AbstractEngineSpec, Finished, Request
from gimbal.engines.native import Native
from gimbal.ops import philox
from gimbal.policies.base import AbstractPolicy
from gimbal.recipes.demo import demo
from gimbal.records import Rollout
from gimbal.runtime import fleet
from gimbal.runtime.local import Trainer
from gimbal.runtime.pool import PoolEngine, PoolScorer
from gimbal.runtime.ray import Ray
from gimbal.runtime.run import Run

PAUSE = 0.005  # seconds of sleep where all that is left is waiting


@dataclass(frozen=True, kw_only=True)
class SlowTool(AbstractEngineSpec):
    """``engine``, each of whose rollouts ends with a call of ``median`` * exp(``sigma`` z) seconds, at most ``longest``."""

    engine: AbstractEngineSpec = Native(precision="int8")
    median: float = 0.4
    sigma: float = 1.2
    longest: float = 8.0

    def start(self, policy: AbstractPolicy) -> SlowToolEngine:
        return SlowToolEngine(self, self.engine.start(policy))


class SlowToolEngine(AbstractEngine):
    """Rollouts wait side by side; the engine inside goes on with the others."""

    def __init__(self, spec: SlowTool, inner: AbstractEngine) -> None:
        self.spec, self.inner = spec, inner
        self.seeds: dict[tuple[int, int], Request] = {}
        self.waiting: dict[tuple[int, int], tuple[float, Finished]] = {}

    @property
    def version(self) -> int:
        return self.inner.version

    @property
    def tolerance(self) -> float:
        return self.inner.tolerance

    @property
    def in_flight(self) -> int:
        return self.inner.in_flight + len(self.waiting)

    def submit(self, request: Request) -> None:
        self.seeds[request.key] = request
        self.inner.submit(request)

    def step(self) -> list[Finished]:
        if self.inner.in_flight:
            for item in self.inner.step():
                request = self.seeds.pop(item.key)
                z = philox(request.seed, f"tool {request.task.id}", request.sample).standard_normal()
                seconds = min(self.spec.longest, self.spec.median * math.exp(self.spec.sigma * z))
                self.waiting[item.key] = (time.monotonic() + seconds, item)
        elif self.waiting:
            time.sleep(PAUSE)
        now = time.monotonic()
        back = [key for key, (due, _) in self.waiting.items() if due <= now]
        return [self.waiting.pop(key)[1] for key in back]

    def cancel(self, key: tuple[int, int]) -> Rollout | None:
        self.seeds.pop(key, None)
        held = self.waiting.pop(key, None)
        return held[1].rollout if held else self.inner.cancel(key)

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        self.inner.load(version, state)

    def score(self, rollout: Rollout) -> Float[Tensor, " S"]:
        return self.inner.score(rollout)

    def state_dict(self) -> dict[str, Any]:
        raise NotImplementedError("a benchmark is not resumed")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        raise NotImplementedError("a benchmark is not resumed")


def run_of(seed: int, k: int, steps: int, workers: int) -> Run:
    return replace(
        demo(),
        engine=SlowTool(),
        prompts_per_step=8,
        num_generations=8,
        max_staleness=k,
        filters=(),
        held_out=None,
        steps=steps,
        seed=seed,
        threads=1,
        runtime=Ray(workers=workers, scorers=1, cpus=0.5),
    )


def timed(run: Run, warm: int) -> dict[str, float]:
    """Figures of the steps after the first ``warm``, in which the pipeline fills and processes start."""
    trainer, rows, rollouts, start = Trainer(run), [], 0, 0.0
    try:
        for step in range(run.steps):
            if step == warm:
                start = time.perf_counter()
            metrics, groups, _ = trainer.advance()
            rows.append(metrics)
            rollouts += sum(len(group.rollouts) for group in groups) if step >= warm else 0
        seconds = time.perf_counter() - start
    finally:
        trainer.close()
    late = rows[warm:]
    last = rows[-max(1, len(rows) // 5) :]
    return {
        "rollouts_per_s": rollouts / seconds,
        "seconds_per_step": seconds / len(late),
        "idle_frac": statistics.mean(row["pool/idle_frac"] for row in late),
        "age": statistics.mean(row["staleness/mean"] for row in late),
        "max_age": max(row["staleness/max"] for row in rows),
        "final_reward": statistics.mean(row["reward/mean"] for row in last),
        "proof_frac": statistics.mean(row["time/sync"] / row["time/step"] for row in late),
    }


def interval(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.3g}"
    return f"{statistics.mean(values):.3g} +- {1.96 * statistics.stdev(values) / len(values) ** 0.5:.2g}"


def speed(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[int, list[dict[str, float]]] = {0: [], options.staleness: []}
    for seed in range(options.seeds):
        for k in found:
            found[k].append(timed(run_of(seed, k, options.steps, options.workers), options.warm))
            print(f"seed {seed}, k = {k}: {found[k][-1]}", flush=True)
    ratio = [a["rollouts_per_s"] / s["rollouts_per_s"] for s, a in zip(found[0], found[options.staleness], strict=True)]
    for name in found[0][0]:
        sides = "   ".join(f"k = {k}: {interval([row[name] for row in rows])}" for k, rows in found.items())
        print(f"{name:>18}   {sides}")
    print(f"{'rollouts/s, ratio':>18}   {interval(ratio)}")
    return {"options": {k: v for k, v in vars(options).items() if k != "out"}, "by_staleness": found, "ratio": ratio}


def faults(options: argparse.Namespace) -> dict[str, Any]:
    """Kills until ``count`` have been injected, with the run going on; then the account."""
    import ray

    fleet.LOSSES_IN_A_ROW = 10**6
    k, draw, injected = options.staleness, random.Random(0), Counter[str]()
    quick = SlowTool(median=0.05, sigma=1.0, longest=1.0)
    run = replace(run_of(0, k, 10**6, options.workers), engine=quick, prompts_per_step=4, num_generations=4)
    trainer, consumed, oldest = Trainer(run, note=print), Counter[int](), 0.0
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
    there = {*pipeline.expected, *pipeline.scoring, *pipeline.store}
    gone = sum(count for reason, count in pipeline.drops.items() if "/" not in reason)
    return {
        "faults": dict(injected),
        "seconds": time.perf_counter() - start,
        "steps": trainer.learner.version,
        "groups_trained_on": len(consumed),
        "groups_twice": sum(count > 1 for count in consumed.values()),
        "groups_lost": pipeline.dispatched - len(consumed) - len(there) - gone,
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
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warm", type=int, default=2)
    parser.add_argument("--staleness", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between faults, on average")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    import ray

    ray.init(num_cpus=2, object_store_memory=200_000_000, include_dashboard=False, log_to_driver=False)
    try:
        found = speed(options) if options.what == "speed" else faults(options)
    finally:
        ray.shutdown()
    print(json.dumps(found, default=str) if options.what == "faults" else "")
    if options.out:
        options.out.write_text(json.dumps(found, indent=1, default=str))


if __name__ == "__main__":
    main()
