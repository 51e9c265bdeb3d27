"""What a learner in two processes costs or gains beside one: seconds a step, and memory a process.

The same batch of rollouts is trained on (prepare and step, the gathering of whole weights on rank 0 included) by one process
with one thread, by one with two threads, and by two processes of one thread each, in turns, on the same two cores. Two models:
gimbal-tiny, and its architecture at 58 M random weights.

    taskset -c 0,1 python benchmarks/ranks.py --out benchmarks/ranks.json         # a quarter of an hour

"of one core's" is processor time of rank 0: where the machine is busy with other work, compare that. "held" is what must stay in
memory between steps: weights and optimiser state of this process; on rank 0 the whole weights too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sync import large
from torch import Tensor

from gimbal.dataflow.packing import pack
from gimbal.engines.base import Request
from gimbal.engines.native import Native
from gimbal.learning.joining import follow, join, lead
from gimbal.learning.learner import Learner
from gimbal.learning.ranks import AbstractRanks, several
from gimbal.ops import philox
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.records import Group, TrainBatch
from gimbal.runtime import device

SIDES = {"1 process, 1 thread": (1, 1), "1 process, 2 threads": (1, 2), "2 processes, 1 thread each": (2, 1)}
GROUPS, ROLLOUTS, LENGTH = 8, 4, 64


def batch_of(policy: CausalLM) -> TrainBatch:
    """Rollouts of the policy with rewards drawn at random; the same in each process that draws them."""
    live = policy.load(0)
    engine, tasks = Native(precision="float32").start(live), grpo().tasks
    engine.load(0, live.state_dict())
    drawn: dict[tuple[int, int], Any] = {}
    for group in range(GROUPS):
        for sample in range(ROLLOUTS):
            sampling = Sampling(max_length=LENGTH)
            engine.submit(Request(group=group, task=tasks[group], sample=sample, sampling=sampling, seed=0))
    while engine.in_flight:
        drawn |= {finished.key: finished.rollout for finished in engine.step()}
    scored = {key: replace(r, score=float(philox(0, "score", *key).random())) for key, r in drawn.items()}
    groups = [tuple(scored[group, sample] for sample in range(ROLLOUTS)) for group in range(GROUPS)]
    return pack([Group.of(n, rollouts[0].task, rollouts) for n, rollouts in enumerate(groups)])


def _learner(spec: CausalLM, policy: Any, ranks: AbstractRanks) -> Learner:
    method = replace(grpo(), optimization=replace(grpo().optimization, microbatch_tokens=2048))
    return Learner(policy, method, ranks=ranks)


def one_side(directory: str, threads: int, steps: int) -> None:
    """Time and weigh in this process; the last line is for the one that started it."""
    device.prepare(threads)
    spec = large(Path(directory)) if directory else CausalLM()
    ranks = join()
    start = partial(_learner, spec)
    if several() and int(os.environ["RANK"]) > 0:
        follow(ranks, spec.load(0), start)
        return
    batch = batch_of(spec)
    learner = lead(ranks, spec.load(0), start)
    seconds, cpu = [], []
    for _ in range(steps + 1):
        begun, worked = time.perf_counter(), time.process_time()
        metrics = learner.step(learner.prepare(batch))
        seconds.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - worked)
    member = learner if isinstance(learner, Learner) else learner.member.learner
    weights = list(member.policy.parameters()) + ([] if learner is member else list(learner.policy.parameters()))
    state = [
        x for own in member.models.optimizers["policy"].state.values() for x in own.values() if isinstance(x, Tensor)
    ]
    held = sum(_bytes(x) for x in weights + state)
    learner.close()
    weighed = {"held": held, "peak_mb": device.peak_memory_mb(), "grad_norm": metrics["grad_norm"]}
    print(json.dumps({"seconds": seconds[1:], "cpu": statistics.median(cpu[1:]), **weighed}))


def _bytes(tensor: Tensor) -> int:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local.numel() * local.element_size()


def measured(processes: int, threads: int, directory: str, steps: int) -> dict[str, Any]:
    start = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if processes > 1 else []
    own = ["--side", directory, "--threads", str(threads), "--steps", str(steps)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([sys.executable, *start, __file__, *own], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="gimbal-tiny only")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side is not None:
        return one_side(given.side, given.threads, given.steps)
    found = []
    with tempfile.TemporaryDirectory() as directory:
        for name, where in (("gimbal-tiny", ""), ("58 M", directory))[: 1 if given.tiny else 2]:
            turns = [
                {side: measured(*how, where, given.steps) for side, how in SIDES.items()} for _ in range(given.turns)
            ]
            for side in SIDES:
                rows = [turn[side] for turn in turns]
                seconds = [value for row in rows for value in row["seconds"]]
                row = {"model": name, "side": side, "seconds": statistics.median(seconds), "all_seconds": seconds}
                row |= {key: rows[0][key] for key in ("held", "peak_mb", "grad_norm")}
                row["cpu_seconds"] = statistics.median(row["cpu"] for row in rows)
                found.append(row)
                print(
                    f"{name:12} {side:27} {row['seconds']:7.3f} s a step ({row['cpu_seconds']:.3f} of one core's)   "
                    f"held {row['held'] / 1e6:7.1f} MB   peak {row['peak_mb']:6.0f} MB   |g| {row['grad_norm']:.5f}",
                    flush=True,
                )
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
