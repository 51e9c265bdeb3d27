"""What each old-logit provider costs: the learner's time a step, and the memory it holds.

The demo, a run a provider, side by side: each takes a few steps in turn, on the same tasks and seed, staleness 2, the engine in the
learner's process, one thread. The first step of a turn is not counted: a provider with a process of its own has caught up with its
work while the others had their turns. Medians over the others, after three steps each: milliseconds of ``time/anchor`` (waiting
included), of the learner's half and of the step by the clock, and processor time of the step, which on a busy machine says what
the clock does not.

    python benchmarks/anchors.py --out benchmarks/anchors.json        # four minutes on 2 idle cores
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gimbal.learning.proximal.base import AbstractAnchor
from gimbal.learning.proximal.behavior import Behavior
from gimbal.learning.proximal.ewma import Ewma
from gimbal.learning.proximal.interpolated import Interpolated
from gimbal.learning.proximal.interruption import Interruption
from gimbal.learning.proximal.recompute import Recompute
from gimbal.learning.proximal.sampling_version import SamplingVersion
from gimbal.learning.proximal.snapshots import Snapshots
from gimbal.recipes.core.demo import demo
from gimbal.runtime.local import Trainer

K = 2  # max_staleness
WARM = 3
TURN = 4  # steps, of which the first is not counted
ANCHORS: dict[str, AbstractAnchor] = {
    "Behavior": Behavior(),
    "Recompute": Recompute(),
    "Interpolated": Interpolated(),
    "Ewma": Ewma(window=K, reset_below=0.9),
    "Snapshots(count=3)": Snapshots(count=K + 1),
    "SamplingVersion": SamplingVersion(window=K),
    "SamplingVersion(apart)": SamplingVersion(window=K, apart=True),
    "Interruption": Interruption(),
}


def measured(turns: int) -> dict[str, list[dict[str, float]]]:
    """The figures of each provider's steps that count."""
    trainers = {
        name: Trainer(replace(demo(), anchor=anchor, max_staleness=K, correction=None, held_out=None, threads=1))
        for name, anchor in ANCHORS.items()
    }
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in ANCHORS}
    try:
        for turn in range(1 + turns):
            for name, trainer in trainers.items():
                for place in range(TURN if turn else WARM):
                    begin = time.process_time()
                    metrics = trainer.advance()[0]
                    if turn and place:
                        rows[name].append(dict(metrics) | {"cpu": time.process_time() - begin})
    finally:
        for trainer in trainers.values():
            trainer.close()
    return rows


def row_of(name: str, rows: Sequence[Mapping[str, float]]) -> dict[str, object]:
    middle = {
        key: statistics.median(row[key] for row in rows) for key in ("time/anchor", "time/train", "time/step", "cpu")
    }
    return {
        "provider": name,
        "anchor_ms": 1e3 * middle["time/anchor"],
        "train_ms": 1e3 * middle["time/train"],
        "step_ms": 1e3 * middle["time/step"],
        "cpu_ms": 1e3 * middle["cpu"],
        "megabytes": max(row["anchor/bytes"] for row in rows) / 1e6,
        "oldest": max(row["staleness/max"] for row in rows),
        "load": round(os.getloadavg()[1], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What each old-logit provider costs, on the demo.")
    parser.add_argument("--turns", type=int, default=4, help=f"of {TURN} steps for each provider")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    words = parser.parse_args()
    rows = [row_of(name, found) for name, found in measured(words.turns).items()]
    for row in rows:
        figures = "  ".join(f"{key} {value:.2f}" for key, value in row.items() if isinstance(value, float))
        print(f"{row['provider']!s:24} {figures}", flush=True)
    if words.out:
        words.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
