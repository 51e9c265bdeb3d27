"""Pictures in scales: does it help to learn each scale once more after one's own coarser one? (SAR)

**Setting.** gimbal-scales draws a digit of a class at 2 x 2, 4 x 4 and 8 x 8 pixels; it goes on learning from real digits, 60 a step,
for 30 steps. Arms: *forced*, the recipe `next_scale_sft`, teacher forcing alone; *sar*, the recipe `sar`: each scale but the first once
more after the policy's own likeliest coarser one, towards what the policy says after the true one, at the published weight of 0.01.

**Figures**, of 400 pictures of all ten classes that the policy draws by itself, at temperature 1: *nearness*, the energy distance to
scikit-learn's digits (`few_steps.py`) with a minus; *real*, the share as near to the odd rows of their class as nineteen of twenty real
ones. *seconds* are the processor's, of training.

**Rule.** Each arm at the best of 3e-4, 1e-3 and 3e-3 by *nearness* of one run of seed 100, then seeds 0 to 4. *SAR draws nearer to the
data* if the interval of the difference in *nearness*, over all 25 pairs of seeds (exact, 96.8 %: the third from either end), lies above
0, and refuted if it lies below; *it draws more real ones* by the same rule in *real*.

**Limits.** The base was made by teacher forcing and draws well, so there is little to gain. Letters are pixels, where published models
have patches of a codebook. Equal steps, not equal seconds: *sar* takes another pass forward. Both arms sit at the lowest rate tried.

Written before its runs, after the pilots of docs/log.md, which showed nothing (40 steps at 1e-3, one run each: nearness -.010 and
-.011): no gain is expected.

    python claims/staggered.py       # goes on from claims/staggered.json; four minutes of one idle core
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import resolution
import torch

from gimbal import recipes
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
RECIPES, STEPS = {"forced": "next_scale_sft", "sar": "sar"}, 30

Job = tuple[str, float, int]  # arm, learning rate, seed

TUNED = campaign.Tuned(tuple(RECIPES), (3e-4, 1e-3, 3e-3), (0, 1, 2, 3, 4), "nearness")
COMPARED = {"SAR draws nearer to the data": ("sar", "forced"), "It draws more real ones": ("sar", "forced", "real")}


def run_of(arm: str, rate: float, seed: int) -> Run:
    run = recipes.load(RECIPES[arm])
    assert isinstance(run, Run)
    optimization = replace(run.optimization, learning_rate=rate)
    return replace(run, optimization=optimization, seed=seed, steps=STEPS, held_out=None)


def measure(job: Job) -> dict[str, Any]:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    arm, rate, seed = job
    trainer = Trainer(run_of(*job))
    trainer.begin()
    start = time.process_time()
    for _ in range(STEPS):
        trainer.advance()
    seconds = round(time.process_time() - start, 1)
    found = resolution.figures(trainer, seed)
    trainer.close()
    return {
        "arm": arm,
        "rate": rate,
        "seed": seed,
        **{name: found[name] for name in ("nearness", "real")},
        "seconds": seconds,
    }


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
