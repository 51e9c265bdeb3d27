"""Actors apart from the learner, on Ray, beside a learner that acts itself, in a slow environment: SAC on a Pendulum whose every step
takes 20 ms, as of a robot that is asked 50 times a second.

    python benchmarks/actors.py --seeds 5 --out benchmarks/actors.json

Both sides: the recipe ``sac``, four environments, 100 steps of the environment and 100 updates a learner step, 4,000 steps in all, the
same seeds, in turns. They differ in where the environments are stepped: ``together`` in the learner's process, one after the other, at
max_staleness 0; ``apart`` by four Ray workers, at max_staleness 1. The clock runs from the first learner step, when all workers are up,
to the end of the last. The return is that of the last policy at its mode, the mean of 20 episodes of Pendulum-v1.

The rule, written before the runs: apart has at least 1.8 times the steps a second (the lower end of the interval of the ratios at
equal seeds), and the interval of the differences of returns at equal seeds holds 0.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.classic_control import PendulumEnv

from gimbal.environments.gym import Gymnasium
from gimbal.recipes.papers.control.sac import sac
from gimbal.runtime.local import Trainer
from gimbal.runtime.ray import Ray
from gimbal.runtime.run import UpdateRun

WORKERS, LIMIT = 4, 200
SEGMENT = 25  # steps of each environment in a learner step
DELAY = 0.02  # seconds of a step


class SlowPendulum(PendulumEnv):
    """Pendulum that sleeps in each of its steps."""

    def step(self, action: Any) -> Any:
        time.sleep(DELAY)
        return super().step(action)


def slow_pendulum() -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(SlowPendulum(), LIMIT)


def run_of(arm: str, seed: int, steps: int) -> UpdateRun:
    run = sac()
    run = replace(
        run,
        engine=replace(run.engine, slots=WORKERS if arm == "together" else 1, segment=SEGMENT),
        tasks=Gymnasium(environment=f"{Path(__file__).resolve()}:slow_pendulum", seed=1),
        prompts_per_step=WORKERS,
        steps=steps // (WORKERS * SEGMENT),
        seed=seed,
    )
    return run if arm == "together" else replace(run, max_staleness=1, runtime=Ray(workers=WORKERS, cpus=0.5))


def measured(arm: str, seed: int, steps: int) -> dict[str, Any]:
    run = run_of(arm, seed, steps)
    trainer = Trainer(run)
    try:
        trainer.begin()
        while arm == "apart" and len(trainer.engine.workers) < WORKERS:
            time.sleep(0.05)
        start, rows = time.perf_counter(), []
        while trainer.learner.version < run.steps:
            rows.append(trainer.advance()[0])
        seconds = time.perf_counter() - start
        return {
            "arm": arm,
            "seed": seed,
            "env_steps_per_s": run.steps * WORKERS * SEGMENT / seconds,
            "return": trainer.evaluate().greedy_score,
            "lag": statistics.mean(row["replay/lag"] for row in rows),
            "lag_max": max(row["replay/lag_max"] for row in rows),
            "update_to_data": rows[-1]["replay/update_to_data"],
            "learner_share": sum(row["time/train"] for row in rows) / seconds,
            "load": os.getloadavg()[0],
        }
    finally:
        trainer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4_000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    import ray

    ray.init("local", num_cpus=2, object_store_memory=200_000_000, include_dashboard=False, log_to_driver=False)
    setting = {"workers": WORKERS, "seconds_a_step": DELAY, "env_steps": given.steps}
    runs: list[dict[str, Any]] = []
    try:
        for seed in range(given.seeds):
            for arm in ("apart", "together"):
                runs.append(measured(arm, seed, given.steps))
                print(json.dumps(runs[-1]), flush=True)
                if given.out:
                    given.out.write_text(json.dumps({"setting": setting, "runs": runs}, indent=1) + "\n")
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
