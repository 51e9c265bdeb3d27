"""What a call of a sandbox costs: seconds of an empty and of a small program in a warm one, of a start, a fork, and the ten attacks.

    python benchmarks/sandbox.py --out benchmarks/sandbox.json

On a machine that is busy a program waits for its turn far longer than it runs: ``chrt -r 1 python benchmarks/sandbox.py`` (as root)
is served first. The load and the scheduling are part of what is written. With ``--image NAME`` (``--engine podman``) a container too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from gimbal.sandbox.base import AbstractSandboxSpec
from gimbal.sandbox.container import Container
from gimbal.sandbox.live import SandboxError
from gimbal.sandbox.monty import Monty
from gimbal.sandbox.processes import Bubblewrap, Landlock
from gimbal.sandbox.trial import held

SMALL = "total = 0\nfor n in range(100):\n    total += n * n\nprint(total)"


def milliseconds(name: str, action: Callable[[], object], times: int) -> dict[str, float]:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        taken.append(1e3 * (time.perf_counter() - start))
    taken.sort()
    return {f"{name}_ms": statistics.median(taken), f"{name}_p90_ms": taken[times * 9 // 10]}


def measure(spec: AbstractSandboxSpec, calls: int) -> dict[str, object]:
    start = time.perf_counter()
    sandbox = spec.start()
    sandbox.exec("")
    first = time.perf_counter() - start
    sandbox.write("file", b"x" * 1000)
    found: dict[str, object] = {
        "first_call_ms": 1e3 * first,
        **milliseconds("empty", lambda: sandbox.exec(""), calls),
        **milliseconds("small", lambda: sandbox.exec(SMALL), calls),
        **milliseconds("write", lambda: sandbox.write("file", b"x" * 1000), calls),
        **milliseconds("read", lambda: sandbox.read("file"), calls),
        **milliseconds("fork", lambda: sandbox.fork().close(), max(3, calls // 40)),
    }
    sandbox.close()
    start = time.perf_counter()
    holds = held(spec)
    return found | {
        "held": sum(holds.values()),
        "attacks": len(holds),
        "attacks_ms": 1e3 * (time.perf_counter() - start),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--image", default="")
    parser.add_argument("--engine", default="docker")
    options = parser.parse_args()
    found: dict[str, object] = {
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "real_time": os.sched_getscheduler(0) != os.SCHED_OTHER,
        "root": os.geteuid() == 0,
    }
    rungs = []
    boxed = [Container(image=options.image, engine=options.engine)] if options.image else []
    for spec in (Monty(), Landlock(), Bubblewrap(), *boxed):
        name = type(spec).__name__
        try:
            rungs.append({"rung": name, **measure(spec, options.calls)})
        except SandboxError as error:
            print(f"{name}: {error}")
            continue
        print(json.dumps(rungs[-1], indent=1))
    found["rungs"] = rungs
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
