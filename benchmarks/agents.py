"""Episodes of agents with slow tools: how many end in a second, side by side and one after the other, and how idle the sampler is.

    python benchmarks/agents.py

Each episode is three turns of eight tokens of gimbal-tiny, with a tool of 0.05 to 2 s (uniform in its logarithm) after each. The agent
is a program at an address of its own (``tool_agent.patient``); 64 are under way at a time until all episodes are through. "as they
come" takes a request when it comes, "synchronous" waits for all agents before the next step of the engine (overlap=0), and "in steps"
takes a request 64 steps after the answer before it, so that a run repeats to the bit. "batches without agents" is the floor of a
synchronous loop: the same turns and the slowest tool of each 64, without a process or a request over HTTP.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import time
from pathlib import Path
from typing import Any

from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.learning.weight_sync.receipts import load
from gimbal.policies.token import CausalLM, Sampling, TokenPolicy
from gimbal.records import Drop, Task
from gimbal.workflows.agent import Agent
from gimbal.workflows.runner import Driven

HERE = Path(__file__).parent
LEAST, MOST, TURNS = 0.05, 2.0, 3


def tasks(count: int, seed: int) -> list[Task]:
    draw = random.Random(seed)
    return [
        Task(
            id=f"t{number}",
            prompt=f"{number} + 1 =",
            columns={"seconds": [math.exp(draw.uniform(math.log(LEAST), math.log(MOST))) for _ in range(TURNS)]},
        )
        for number in range(count)
    ]


def agents(policy: TokenPolicy, given: list[Task], *, at_once: int = 64, **fields: Any) -> dict[str, float]:
    """All episodes through the runner."""
    flow = Agent(program=f"{HERE / 'tool_agent.py'}:patient", at_once=at_once, **fields)
    engine = Driven(engine=Native(slots=64, precision="float32"), workflow=flow).start(policy)
    load(engine, policy, 0)
    engine.submit(request(0, Task(id="warm", prompt="1", columns={"seconds": [0.0]})))  # the process that starts agents
    drained(engine)
    engine.metrics()
    began = time.perf_counter()
    for number, task in enumerate(given):
        engine.submit(request(number, task))
    found = drained(engine)
    seconds = time.perf_counter() - began
    assert not any(isinstance(one.outcome, Drop) for one in found.values())
    return {"rollouts_per_s": len(given) / seconds, "sampler_idle": engine.metrics().get("perf/sampler_idle", 0.0)}


def batches(policy: TokenPolicy, given: list[Task]) -> dict[str, float]:
    """Turn by turn: what is drawn is drawn together, and the slowest of the tools, which run side by side, holds up all."""
    engine = Native(slots=64, precision="float32").start(policy)
    load(engine, policy, 0)
    began, idle = time.perf_counter(), 0.0
    for batch in (given[at : at + 64] for at in range(0, len(given), 64)):
        for turn in range(TURNS):
            for number, task in enumerate(batch):
                prompt = task.prompt + " more" * turn
                engine.submit(request(number, Task(id=f"{task.id}/{turn}", prompt=prompt)))
            drained(engine)
            slowest = max(task.columns["seconds"][turn] for task in batch)
            time.sleep(slowest)
            idle += slowest
    seconds = time.perf_counter() - began
    return {"rollouts_per_s": len(given) / seconds, "sampler_idle": idle / seconds}


def request(number: int, task: Task) -> Request:
    return Request(group=number, task=task, sample=0, sampling=Sampling(max_length=8 if "/" in task.id else 64), seed=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "agents.json")
    o = parser.parse_args()
    policy = CausalLM().load()
    arms = {
        "as they come": lambda given: agents(policy, given),
        "in steps": lambda given: agents(policy, given, overlap=64),
        "synchronous": lambda given: agents(policy, given, overlap=0),
        "batches without agents": lambda given: batches(policy, given),
        "one by one": lambda given: agents(policy, given[:8], at_once=1),
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in arms}
    for turn in range(o.rounds):  # in turns, as the machine is shared
        for name, arm in arms.items():
            found[name].append(arm(tasks(o.episodes, turn)))
            print(name, found[name][-1], flush=True)
    loops = [
        {"loop": name, **{key: statistics.median(one[key] for one in rows) for key in rows[0]}}
        for name, rows in found.items()
    ]
    record = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "episodes": o.episodes, "rounds": o.rounds}
    o.out.write_text(json.dumps({**record, "loops": loops}, indent=1) + "\n")


if __name__ == "__main__":
    main()
