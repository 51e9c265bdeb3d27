"""Do rollouts that continue others where the outcome may turn make more groups mixed? (the second stage of TRACE)

**Setting.** The recipe ``terminal`` (see ``terminal.py``): ``gimbal-tiny-agent`` asks a terminal two to four times an episode. 8
tasks x 8 rollouts a step, 4 steps, on data one version old, at a learning rate of 1e-9: the policy stays what it was, so that arms
differ in nothing but how they sample, and only the head of *trace* learns.

**Arms.** *plain*: 8 rollouts from the prompt. *trace*: the recipe `trace`: 2 from the prompt, 6 that continue them from the ends of
turns where the opposite outcome is likely, by a head that learns meanwhile. *even*: the same with a head that never learns, so that
continuations are spread evenly over the ends of turns: what the prediction adds is the difference.

**Figures.** *mixed*: the share of the groups of a run whose outcomes differ. Beside it *late*, the same of the second half, when the
head has learned; the tokens that the policy generated; and mixed groups per 1,000 of them.

**Rule.** Seeds 0 to 4; no rate is tuned, since nothing learns. An arm is above another if the interval of the difference of *mixed*
over all 25 pairs of seeds (exact, 96.8 %: the third from either end) lies above 0. *More groups are mixed* if *trace* is above
*plain*; *by prediction* if it is above *even*. TRACE reports 27 % to 60 % mixed groups at equal cost; *half as many again* holds if
*trace* has 1.5 times the mixed groups of *plain* for equal tokens, in the median.

**Limits.** One small model, 32 groups a run, and a head that sees some two hundred outcomes. Placing is within a group, where the
paper's goes over all groups of a step; its first stage is left out. Whether mixed groups teach more is not asked.

Written before its runs, after two steps of *plain* and *trace* at 5e-5 (seed 101), which showed what a step costs, and had 14 and 11
of 16 groups mixed.

    python claims/turn_splits.py       # goes on from claims/turn_splits.json; two minutes of one idle core
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign

from gimbal.advantages import LeafMean
from gimbal.recipes import function
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run
from gimbal.workflows.quality import QualityHead
from gimbal.workflows.turn_branching import TurnBranching

RECORD = Path(__file__).with_suffix(".json")
ARMS, SEEDS, STEPS, RATE = ("plain", "even", "trace"), (0, 1, 2, 3, 4), 4, 1e-9
COMPARED = {"more groups are mixed": ("trace", "plain"), "by prediction": ("trace", "even")}
FACTOR = 1.5

Job = tuple[str, int]  # arm, seed


def run_of(arm: str, seed: int) -> Run:
    run = function("trace")()
    assert isinstance(run.workflow, TurnBranching) and run.advantage == LeafMean(baseline="parent")
    even = replace(run.workflow, head=QualityHead(rate=0.0))
    workflow = {"plain": run.workflow.inside, "even": even, "trace": run.workflow}[arm]
    optimization = replace(run.optimization, learning_rate=RATE)
    return replace(run, workflow=workflow, held_out=None, optimization=optimization, seed=seed, threads=1)


def measure(job: Job) -> dict[str, Any]:
    trainer, mixed, lengths = Trainer(run_of(*job)), list[float](), 0
    trainer.begin()
    for _ in range(STEPS):
        _, groups, _ = trainer.advance()
        mixed.append(statistics.fmean(float(one.score_G.min() < one.score_G.max()) for one in groups))
        lengths += sum(int(row.mask_S.sum()) for one in groups for row in one.rows)
    trainer.close()
    found = {"mixed": statistics.fmean(mixed), "late": statistics.fmean(mixed[STEPS // 2 :])}
    counts = {"tokens": lengths, "per_1000": round(8_000 * sum(mixed) / lengths, 2)}
    return {"arm": job[0], "seed": job[1]} | {name: round(value, 4) for name, value in found.items()} | counts


def fresh(runs: campaign.Runs, arm: str) -> campaign.Runs:
    """The runs of an arm, in the order of seeds."""
    return sorted((run for run in runs if run["arm"] == arm), key=lambda run: run["seed"])


def left(runs: campaign.Runs) -> Iterator[list[Job]]:
    done = {(run["arm"], run["seed"]) for run in runs}
    yield [(arm, seed) for seed in SEEDS for arm in ARMS if (arm, seed) not in done]


def apart(runs: campaign.Runs, one: str, other: str) -> tuple[float, float, float] | None:
    """By how much an arm is above another in *mixed*, and its interval, once all seeds of both are there."""
    own, theirs = ([run["mixed"] for run in fresh(runs, arm)] for arm in (one, other))
    return campaign.shift(own, theirs) if min(len(own), len(theirs)) == len(SEEDS) else None


def factor(runs: campaign.Runs) -> float | None:
    """Of mixed groups for equal tokens, *trace* over *plain*, in the median."""
    own, theirs = ([run["per_1000"] for run in fresh(runs, arm)] for arm in ("trace", "plain"))
    if min(len(own), len(theirs)) < len(SEEDS):
        return None
    return statistics.median(own) / statistics.median(theirs)


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, campaign.described)
