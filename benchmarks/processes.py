"""Environments in processes of their own (``engine.apart=true``) beside the same in one process, and beside gymnasium's AsyncVectorEnv
stepping alone: steps of the environment a second, for a Pendulum whose every step sleeps 20 ms, one whose every step computes for 5 ms,
and HalfCheetah as it is. Where the load is above the number of cores, only the rows of the one that sleeps can be compared.

    python benchmarks/processes.py --out benchmarks/processes.json

gimbal's figures are of its engine alone: a small policy draws all actions, nothing learns. AsyncVectorEnv is given random actions. The
three take turns, the median of the rounds is told, and the clock runs once all processes are up. The 5 ms are of the thread's own
processor time, so other work on the machine takes steps from all three, and most from what is one process alone. A record is gone on
from. ``--arm threads`` prints the same for threads of one process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.envs.classic_control import PendulumEnv

from gimbal.engines.base import Request
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Environment, Gymnasium
from gimbal.environments.opening import opened
from gimbal.policies.control import StepSampling
from gimbal.policies.squashed import SquashedGaussian

SLEEP, COMPUTE = 0.02, 0.005  # seconds of a step
LONGEST = 100_000  # steps of an episode: none ends while it is measured
HERE = Path(__file__).resolve()
SOURCES = {
    "20 ms asleep": f"{HERE}:Sleeping",
    "5 ms of computing": f"{HERE}:Computing",
    "HalfCheetah-v5": f"{HERE}:cheetah",
}


class Sleeping(PendulumEnv):
    def step(self, action: Any) -> Any:
        time.sleep(SLEEP)
        return super().step(action)


class Computing(PendulumEnv):
    def step(self, action: Any) -> Any:
        until = time.thread_time() + COMPUTE
        while time.thread_time() < until:
            pass
        return super().step(action)


def cheetah() -> gymnasium.Env:
    return gymnasium.make("HalfCheetah-v5", max_episode_steps=LONGEST, disable_env_checker=True)


def a_second(step: Callable[[], object], count: int, seconds: float) -> float:
    """Steps of the environment a second, where each call makes ``count``; the first is not counted."""
    step()
    start, calls = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < seconds:
        step()
        calls += 1
    return calls * count / spent


def of_engine(source: str, count: int, seconds: float, *, apart: bool) -> float:
    world = Environment(source)
    sizes = {"observations": world.observations, "actions": world.actions, "bound": world.bound}
    policy = SquashedGaussian(**sizes).load(0)
    engine, tasks = Episodes(slots=count, apart=apart).start(policy), Gymnasium(environment=source)
    engine.load(0, policy.state_dict())
    for index in range(count):
        sampling = StepSampling(max_length=LONGEST)
        engine.submit(Request(group=index, task=tasks[index], sample=0, sampling=sampling, seed=0))
    try:
        return a_second(engine.step, count, seconds)
    finally:
        assert engine.in_flight == count, "none has ended"
        engine.close()


def of_gymnasium(source: str, count: int, seconds: float) -> float:
    worlds = gymnasium.vector.AsyncVectorEnv([partial(opened, source)] * count, context="spawn")
    worlds.reset(seed=0)
    worlds.action_space.seed(0)
    try:
        return a_second(lambda: worlds.step(worlds.action_space.sample()), count, seconds)
    finally:
        worlds.close()


def of_threads(source: str, count: int, seconds: float) -> float:
    worlds = [opened(source) for _ in range(count)]
    for seed, world in enumerate(worlds):
        world.reset(seed=seed)
    actions = [np.zeros(world.action_space.shape, np.float32) for world in worlds]
    with ThreadPoolExecutor(count) as threads:
        return a_second(
            lambda: list(threads.map(lambda world, action: world.step(action), worlds, actions)), count, seconds
        )


ARMS: dict[str, Callable[[str, int, float], float]] = {
    "one_process": partial(of_engine, apart=False),
    "apart": partial(of_engine, apart=True),
    "gymnasium": of_gymnasium,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--arm", choices=["threads"])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    arms = {"threads": of_threads} if given.arm else ARMS
    setting = {"cores": len(os.sched_getaffinity(0)), "rounds": given.rounds, "seconds_a_round": given.seconds}
    rows: list[dict[str, Any]] = []
    if given.out and given.out.exists():
        rows = json.loads(given.out.read_text())["speeds"]
    done = {(row["environment"], row["live"]) for row in rows}
    for name, source in SOURCES.items():
        for count in (count for count in (1, 2, 4) if (name, count) not in done):
            rounds: list[dict[str, float]] = []
            for _ in range(given.rounds):
                rounds.append({arm: measure(source, count, given.seconds) for arm, measure in arms.items()})
            row: dict[str, Any] = {"environment": name, "live": count}
            row |= {f"{arm}_per_s": statistics.median(one[arm] for one in rounds) for arm in arms}
            if not given.arm:
                ratios = [one["apart"] / one["one_process"] for one in rounds]
                row |= {"apart_by_one": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
            rows.append(row | {"load": os.getloadavg()[0]})
            print(json.dumps(rows[-1]), flush=True)
            if given.out:
                given.out.write_text(json.dumps({"setting": setting, "speeds": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
