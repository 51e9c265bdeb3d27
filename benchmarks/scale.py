"""What the simulator says of 8, 64 and 1,024 GPUs: the tables of docs/scale.md. Nothing here is measured.

Speeds follow from a data sheet, the shapes of a model and shares of the peak that are assumed, all of them below.

    python benchmarks/scale.py --out benchmarks/scale.json
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gimbal.runtime.simulate.simulator import SCHEDULES, Schedule, Setup, simulate
from gimbal.runtime.simulate.timing import LogNormal, Speeds, Waits

# One H100 SXM, from NVIDIA's data sheet.
BANDWIDTH, FLOPS = 3.35e12, 989e12  # bytes a second; dense bfloat16 operations a second
# A dense model of the 8 B class, by the public configuration of Qwen3-8B: 36 layers, 8 key-value heads of 128.
PARAMETERS, CACHE = 8.2e9, 2 * 36 * 8 * 128 * 2  # weights; bytes of keys and values a token, in bfloat16
# Assumed.
DECODE_SHARE, PREFILL_SHARE, TRAIN_SHARE = 0.6, 0.5, 0.4  # of the bandwidth; of the operations; of the operations
PORT = 50e9  # bytes a second into each sampler: one 400 Gb/s port, filled
PASSES = 8  # operations a weight and trained token: forward and backward 6, the anchor's forward 2

WEIGHTS = 2 * PARAMETERS
SPEEDS = Speeds(
    step_s=WEIGHTS / (DECODE_SHARE * BANDWIDTH),
    row_s=2 * PARAMETERS / (PREFILL_SHARE * FLOPS),
    context_s=CACHE / (DECODE_SHARE * BANDWIDTH),
    prefill_token_s=2 * PARAMETERS / (PREFILL_SHARE * FLOPS),
    load_s=WEIGHTS / PORT,
    train_step_s=1.0,
    train_token_s=PASSES * PARAMETERS / (TRAIN_SHARE * FLOPS),
    train_prompt_token_s=PASSES * PARAMETERS / (TRAIN_SHARE * FLOPS),
    sync_s=2.0,
)
BASE = Setup(
    speeds=SPEEDS,
    lengths=LogNormal(mean=4000.0, cv=1.0, limit=16384, task_share=0.5),
    waits=Waits(median=1.0),
    prompt=256,
    slots=64,
    num_generations=16,
    weight_bytes=WEIGHTS,
    warmup=6,
)
SHARES = (0.5, 0.625, 0.75, 0.875)  # of the devices that sample, tried with 64
K = 4
STEPS = {8: 30, 64: 20, 1024: 8}  # that figures are about: the fewer devices, the more chance there is in a step
PROMPTS = 2  # a step and device, where the batch grows with the devices
COLUMNS = (
    "devices",
    "rollouts a step",
    "schedule",
    "k",
    "samplers",
    "tokens/s",
    "a device",
    "s a step",
    "sampler idle",
    "slots used",
    "trainer idle",
    "mean age",
    "oldest",
    "sync GB/s",
)


def plan(devices: int, share: float, prompts: int, k: int) -> Setup:
    samplers = round(devices * share)
    return replace(
        BASE,
        samplers=samplers,
        trainers=devices - samplers,
        prompts_per_step=prompts,
        max_staleness=k,
        steps=STEPS[devices],
    )


def forecast(work: tuple[int, float, int, int, Schedule]) -> dict[str, Any]:
    devices, share, prompts, k, schedule = work
    return {"devices": devices, "prompts": prompts} | simulate(plan(devices, share, prompts, k), schedule).as_dict()


def line(row: dict[str, Any]) -> str:
    cells = (
        f"{row['devices']:,}",
        f"{row['prompts'] * BASE.num_generations:,}",
        row["schedule"],
        row["max_staleness"],
        row["samplers"],
        f"{row['tokens_per_s']:,.0f}",
        f"{row['tokens_per_s'] / row['devices']:,.0f}",
        f"{row['step_s']:.0f}",
        *(f"{row[name]:.0%}" for name in ("sampler_idle", "occupancy", "trainer_idle")),
        f"{row['age_mean']:.2f}",
        row["age_max"],
        f"{row['sync_bytes_per_s'] / 1e9:.1f}",
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    words = parser.parse_args()
    with ProcessPoolExecutor(words.processes) as pool:
        # Serial runs on all devices whatever the split, and with k = 0: its bound would only make data older.
        tried = [(64, share, 64 * PROMPTS, K, schedule) for schedule in SCHEDULES[1:] for share in SHARES]
        splits = list(pool.map(forecast, tried))
        best: dict[str, float] = {}
        for schedule in SCHEDULES[1:]:
            of = [
                (row["tokens_per_s"], work[1]) for work, row in zip(tried, splits, strict=True) if work[4] == schedule
            ]
            best[schedule] = max(of)[1]
        work = [
            (devices, best.get(schedule, 0.5), prompts, 0 if schedule == "serial" else K, schedule)
            for devices, prompts in ((8, 16), (64, 128), (1024, 2048), (1024, 128))
            for schedule in SCHEDULES
        ]
        bounds = [(64, best["partial-rollout"], 128, k, "partial-rollout") for k in (1, 2, 4, 8, 16)]
        rows, ks = list(pool.map(forecast, work)), list(pool.map(forecast, bounds))
    header = ["| " + " | ".join(COLUMNS) + " |", "| " + "--- | " * len(COLUMNS)]
    for title, part in (("splits of 64", splits), ("the tables", rows), ("bounds", ks)):
        print(title, *header, *map(line, part), sep="\n")
    print({name: f"{value:.3g}" for name, value in asdict(SPEEDS).items()})
    if words.out:
        document = {"speeds": asdict(SPEEDS), "best_share": best, "splits": splits, "rows": rows, "bounds": ks}
        words.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
