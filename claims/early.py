"""What it is worth to cut episodes off that are not worth finishing (LEAST, arXiv:2506.13672).

**Setting.** The recipe `least`: a point walks home among four marshes in which it stays to the end of its episode (100 steps), 4,000
steps of the environment, one move of the weights each. Arms: *least*, the recipe; *whole*, the same without early stops; *short*, all
training episodes cut off after 40 steps in place of it, as a truncation too (a way home takes some 15).

**Figures.** *return*, the mean over five marks (2,000, 2,500, 3,000, 3,500 and 4,000 steps) of the mean return of 20 held-out episodes
of 100 steps by the mode of the policy; *success*, the same of the share that comes home. *stopped*, the share of *least*'s episodes
that it cut off, and *stuck*, the share of all training steps that began in a marsh, say what happened.

**Rates.** Each arm at the best of 1e-3, 3e-3 and 1e-2 (policy and critic), by the *return* of one run of seed 100.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their returns, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0; below it, the question is refuted. *It helps*: *least* above *whole*. *It does more
than a shorter limit*: *least* above *short*.

**Limits.** One task, made for it: what holds an episode up is seen at once in its values. That 40 steps are a good limit was known
beforehand, and a user would have to find it; nor were other limits tried. All other settings are the recipe's, of which none was tuned.

Written before its runs, after single pilots of seed 100 and 4,000 steps at 3e-3: *whole* came home at 3,500 steps (-51.9 at 3,000,
-8.0 at 3,500), *least* at 3,000 (-12.2, -8.3) and *short* at 2,500 (.8 of its episodes). At 1e-3, with marshes of .2 in place of .17,
neither *whole* nor *least* came home in 3,000 steps (-78.0 and -71.6).

    python claims/early.py       # goes on from claims/early.json; about eight minutes of one idle core
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import numpy as np
import torch

from gimbal import recipes
from gimbal.engines.episodes import Episodes
from gimbal.environments.sticky_point import MARSHES, RADIUS
from gimbal.policies.control import StepSampling
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("least", "whole", "short"), (1e-3, 3e-3, 1e-2), (0, 1, 2, 3, 4), "return")
COMPARED = {"It helps": ("least", "whole"), "It does more than a shorter limit": ("least", "short")}
STEPS, MARKS, SHORT = 400, (200, 250, 300, 350, 400), 40  # learner steps, of ten steps of the environment each

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> UpdateRun:
    run = recipes.load("least")
    assert isinstance(run, UpdateRun) and isinstance(run.engine, Episodes) and run.held_out is not None
    rates = replace(run.update.optimization, learning_rate=rate, critic_learning_rate=rate)
    held_out = replace(run.held_out, sampling=StepSampling(max_length=1000))
    engine = run.engine if arm == "least" else replace(run.engine, early_stop=None)
    sampling = StepSampling(max_length=SHORT) if arm == "short" else run.sampling
    changes = {"held_out": held_out, "engine": engine, "sampling": sampling, "checkpoint_every": 10 * STEPS}
    return replace(run, update=replace(run.update, optimization=rates), seed=seed, threads=1, steps=STEPS, **changes)


def measure(job: Job) -> dict[str, Any]:
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    arm, rate, seed = job
    trainer, start = Trainer(run_of(*job)), time.process_time()
    trainer.begin()
    marks, ends, stops = [], 0, 0.0
    for step in range(1, STEPS + 1):
        metrics, *_ = trainer.advance()
        if "reward/stopped/mean" in metrics:
            ends, stops = ends + 1, stops + metrics["reward/stopped/mean"]
        if step in MARKS:
            marks.append(trainer.evaluate().metrics())
    cpu = round(time.process_time() - start, 1)
    rows = trainer.store.rows
    place_KO = rows.decisions.observation_NSO[: trainer.store.held, 0].numpy()
    trainer.close()
    away_KM = np.linalg.norm(place_KO[:, None] - MARSHES, axis=-1)
    found = {"arm": arm, "rate": rate, "seed": seed}
    found |= {"return": round(float(np.mean([each["eval/greedy_score"] for each in marks])), 2)}
    found |= {"success": round(float(np.mean([each["eval/greedy_success"] for each in marks])), 3)}
    found |= {"last": round(marks[-1]["eval/greedy_score"], 2)}
    found |= {"stuck": round(float((away_KM < RADIUS).any(-1).mean()), 3), "stopped": round(stops / max(1, ends), 3)}
    return found | {"cpu": cpu}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
