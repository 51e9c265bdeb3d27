"""Masked text: more tokens in a forward pass at the same accuracy? (LightningRL)

**Setting.** gimbal-sudoku fills in grids of 4 x 4 with 6 digits given, any solution counting as right. 8 steps of 8 groups of 8, data
at most one version old, a bfloat16 sampler; all cells are one block, and those above a confidence of 0.9 are committed together. Arms:
*grpo*, the recipe `masked_grpo` with that threshold, whose reward is a right grid; *lightning*, `lightning_rl`: tokens per forward pass
are a second reward, each normalised by itself, with a filter of groups, a likelihood term on right grids and a KL to the base.

**Figures.** 200 grids that no run trains on, filled in at temperature 0 with each of the thresholds 1, 0.97, 0.9, 0.8, 0.6 and 0.4: the
share of right grids and the tokens of a forward pass. *speed* is the most tokens per pass at a share of 0.8, on the lines between
neighbouring thresholds; 0 where no threshold has that share. The base model's is 5.54. *right* and *pace* are the share and the tokens
per pass at 0.9, the threshold of training. *drawn*, the mean of tokens per pass of the rollouts of the last two steps, less that of the
first two, shows whether the reward for speed acts.

**Rule.** Each arm at the better of 1e-4 and 3e-4 by the speed of one run of seed 100, then seeds 0 to 4. *LightningRL is faster* holds
if the interval of the difference of their speeds, over all 25 pairs of seeds (exact, 96.8 %: the third from either end), lies above 0;
it is refuted if the interval lies below 0, and else undecided. *right*, *pace* and *drawn* are described, and decide nothing.

**Limits.** A network of 108 k parameters, 16 cells, one share of right grids, 8 steps of 64 rollouts; LightningRL's blocks of 32 tokens
are one block here. A rate is chosen by a single run. Both arms sit at the lower of the two rates.

Written before its runs, after pilots of *grpo* (seed 0, 14 to 20 steps of 128 rollouts, rates of 1e-4 to 1e-3): its rollouts get
faster, and their share of right grids first rises and then falls; and two steps of *lightning*, to see what they cost.

    python claims/masked.py --processes 1     # goes on from claims/masked.json; two minutes of one idle core
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import torch

from gimbal import recipes
from gimbal.engines.base import Request, drained
from gimbal.engines.unmasking import Unmasking
from gimbal.environments.sudoku import Sudoku
from gimbal.policies.commits import Commits, MaskedSampling
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("grpo", "lightning"), (1e-4, 3e-4), (0, 1, 2, 3, 4), "speed")
RECIPES = {"grpo": "masked_grpo", "lightning": "lightning_rl"}
COMPARED = {"LightningRL is faster": ("lightning", "grpo")}
STEPS, EDGE = 8, 2
TASKS, THRESHOLDS, SHARE, TRAINED = Sudoku(seed=3, size=200), (1.0, 0.97, 0.9, 0.8, 0.6, 0.4), 0.8, 0.9

Job = tuple[str, float, int]  # arm, learning rate, seed
Curve = Sequence[tuple[float, float]]  # (share of right grids, tokens per pass) of each threshold


def run_of(arm: str, rate: float, seed: int) -> Run:
    run = replace(recipes.load(RECIPES[arm]), sampling=MaskedSampling(max_length=16, threshold=TRAINED), held_out=None)
    return replace(run, optimization=replace(run.optimization, learning_rate=rate), seed=seed, threads=1)


def curve(trainer: Trainer, block: int = 0) -> list[tuple[float, float]]:
    engine, found = Unmasking(slots=256).start(trainer.policy), []
    engine.load(0, trainer.learner.weights())
    for threshold in THRESHOLDS:
        sampling = MaskedSampling(max_length=16, threshold=threshold, temperature=0.0, block=block)
        for group in range(len(TASKS)):
            engine.submit(Request(group=group, task=TASKS[group], sample=0, sampling=sampling, seed=0))
        rows = [item.rollout for item in drained(engine).values()]
        right = sum(row.text in row.task.columns["answers"] for row in rows) / len(rows)
        decisions = [row.decisions for row in rows if isinstance(row.decisions, Commits)]
        passes = sum(int(each.passes_N) for each in decisions)
        found.append((round(right, 4), round(16 * len(rows) / passes, 4)))
    return found


def speed(points: Curve, share: float = SHARE) -> float:
    """The most tokens per pass at that share of right grids, on the lines between neighbouring points."""
    return campaign.most_at(points, share)


def measure(job: Job) -> dict[str, Any]:
    return measured(run_of(*job), job, SHARE)


def measured(run: Run, job: Job, share: float) -> dict[str, Any]:
    """What a run of this job ends with; its speed is at that share of right grids."""
    torch.set_num_threads(1)
    arm, rate, seed = job
    trainer = Trainer(run)
    assert isinstance(run.sampling, MaskedSampling)
    trainer.begin()
    drawn = []
    for _ in range(STEPS):
        metrics, _, _ = trainer.advance()
        drawn.append(metrics["reward/speed/mean"])
    points = curve(trainer, run.sampling.block)
    trainer.close()
    right, pace = points[THRESHOLDS.index(TRAINED)]
    moved = round((sum(drawn[-EDGE:]) - sum(drawn[:EDGE])) / EDGE, 4)
    found = {"speed": speed(points, share), "right": right, "pace": pace, "drawn": moved}
    return {"arm": arm, "rate": rate, "seed": seed, **found, "points": [list(point) for point in points]}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
