"""The largest learning rate that 24 steps survive, by the age of the data, the updates a batch and the group size.

**Setting.** That of grid.py: ``gimbal-tiny`` on chain_sum, a float32 sampler, 24 steps of 64 rollouts, the arm *decoupled* (a clip at
0.2 around the recomputed policy, importance weights dropped above 5). Data is exactly so many versions old once the run has begun.
Three settings: groups of 8 with four updates a batch, the same with one, and groups of 2 with four.

**Search.** Rates are 1e-5 x 2^(n/2). From 1.6e-4 the rate is doubled as long as the run survives, or halved as long as it collapses,
and the rate between the last two is tried. A run collapsed if it scores less than the first policy (held-out pass@1 in the sampler, 256
tasks, 2 samples). The result is the largest rate tried that survived below the least that collapsed: half an octave of resolution. One
run decides at each rate, so chance moves the result by a step or two; seeds 0 and 1 are searched apart.

**Compared with.** Gradient descent on a quadratic with a delay of a steps is stable up to 2 sin(pi / (4 a + 2)) / curvature: 1, .50,
.31, .17, .09 and .05 of the rate on fresh data at ages 0, 1, 2, 4, 8 and 16, so about 1 / (1 + a). The rule of the closed loop gives
1 / (1 + a / 4) to a policy all of whose steps go the same way (docs/stability.md).

**Rule.** s is the slope of log2(rate) on log2(1 + a) over the six ages, both seeds, with the interval of a fit whose errors are
independent. The delayed gradient's law is supported if the interval holds -1 and not 0, and refuted if it does not hold -1. The
bound falls with age if the interval lies below 0.

Written before the first run of it.

    python claims/curve.py --processes 2     # goes on from claims/curve.json; about 45 minutes of one idle core
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import campaign
import grid
import numpy as np
from grid import Cell, Job

from gimbal.ops.confidence import student_quantile

RECORD = Path(__file__).with_suffix(".json")
AGES, SEEDS = (0, 1, 2, 4, 8, 16), (0, 1)
FIRST, LEAST, MOST = 8, -6, 16  # half octaves above 1e-5: 1.6e-4, and where a search gives up


@dataclass(frozen=True)
class Setting:
    updates: int
    group: int
    age: int


SETTINGS = [Setting(updates, group, age) for age in AGES for updates, group in ((4, 8), (1, 8), (4, 2))]


def rate(n: int) -> float:
    return 1e-5 * 2 ** (n / 2)


def following(survived: Mapping[int, bool]) -> int | None:
    """The next rate to try, as half octaves above 1e-5; None where the search has ended."""
    if not survived:
        return FIRST
    held, lost = _around(survived)
    if lost is None:
        return None if held == MOST else min(held + 2, MOST)
    if held is None:
        return None if lost == LEAST else max(lost - 2, LEAST)
    return None if lost - held == 1 else held + 1


def largest(survived: Mapping[int, bool]) -> int | None:
    """The largest rate that survived below all that did not."""
    return _around(survived)[0]


def _around(survived: Mapping[int, bool]) -> tuple[int | None, int | None]:
    lost = min((n for n, ok in survived.items() if not ok), default=None)
    held = [n for n, ok in survived.items() if ok and (lost is None or n < lost)]
    return max(held, default=None), lost


def measure(setting: Setting, seed: int, n: int) -> dict[str, Any]:
    job = Job("decoupled", Cell("chain_sum", setting.age, "float32", setting.group, rate(n)), seed)
    run = grid.run_of(job)
    found = grid.measured(job, replace(run, optimization=replace(run.optimization, minibatches=setting.updates)))
    return {**asdict(setting), "seed": seed, "n": n, "score": found["score"], "ended": found["ended"]}


def of(runs: Sequence[Mapping[str, Any]], setting: Setting, seed: int, begin: float) -> dict[int, bool]:
    """Which of the rates that were tried in a setting survived."""
    wanted = {**asdict(setting), "seed": seed}
    here = [run for run in runs if all(run[name] == value for name, value in wanted.items())]
    return {run["n"]: run["score"] >= begin for run in here}


def begin() -> float:
    return grid.start(grid.load(), Cell("chain_sum", 0, "float32", 8, 0.0))


def slope(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Of log2(rate) on log2(1 + age), and half of its 95 % interval."""
    x, y = np.array([(math.log2(1 + age), math.log2(found)) for age, found in points]).T
    design = np.stack([x, np.ones_like(x)], 1)
    fitted, *_ = np.linalg.lstsq(design, y, rcond=None)
    free = len(x) - 2
    variance = ((y - design @ fitted) ** 2).sum() / free
    error = math.sqrt(variance * np.linalg.inv(design.T @ design)[0, 0])
    return float(fitted[0]), student_quantile(0.975, free) * error


def main() -> None:
    words = campaign.asked(__doc__, RECORD)
    runs, first = campaign.load(words.record), begin()
    searches = [(setting, seed) for seed in SEEDS for setting in SETTINGS]
    with ProcessPoolExecutor(words.processes, mp_context=get_context("spawn")) as pool:

        def ask(setting: Setting, seed: int) -> set[Any]:
            n = following(of(runs, setting, seed, first))
            return set() if n is None else {pool.submit(measure, setting, seed, n)}

        waiting: set[Any] = set()
        while waiting or searches:
            # A search is one run after the other, so as many searches go on as there are processes.
            while searches and len(waiting) < words.processes:
                waiting |= ask(*searches.pop(0))
            if not waiting:
                break
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in ended:
                runs.append(found := future.result())
                setting = Setting(found["updates"], found["group"], found["age"])
                print(setting, found["seed"], f"{rate(found['n']):.2g}", f"{found['score']:.3f}", flush=True)
                waiting |= ask(setting, found["seed"])
            campaign.write(runs, words.record)


if __name__ == "__main__":
    main()
