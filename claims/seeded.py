"""Do rollouts behind a solved example teach more, where a task has only failed? (the in-context seeding of XRPO)

**Setting.** Chain sums of 3 or 4 terms, 64 in all, of which each is asked about once; groups of 8 in steps of 8 tasks,
group-normalised, one update a batch on data of the same version, float32 sampler. All arms start from the model of `xrpo_start`:
``gimbal-tiny``, which has never seen two questions in one prompt, after 60 steps of SFT on chain sums, of which 70 % stand behind an
example in the style of the answer. Without an example the shares of styles are what they were. That an example tells the style is
therefore given, as in-context learning is to a large model; what is asked is whether seeded rollouts teach the plain prompt.

**Arms.** *allocated*: XRPO's allocator alone (IntervalShared: 4 rollouts a task, and as many more, where one more narrows the
interval most). *seeded*: the same numbers by the same rule, but what is added to a group that has only failed sees the most similar
task that was solved, with its right answer (Seeded). Novelty sharpening is in neither. Plain GRPO beside the allocator is in
``tokens.py``.

**Figure.** Mean of held-out pass@1 (64 other sums of the same kind, plain prompts, 2 samples each) at the first step after which
3,000 generated tokens are passed, and 6,000. What evaluations draw does not count, and prompts, which seeding makes longer, do not
either.

**Rule.** Each arm at the best of 1e-4 and 3e-4 by one run of seed 100, then seeds 0 to 4. *Seeding helps* if the interval of the
difference over all 25 pairs of seeds (exact, 96.8 %: the third from either end) lies above 0, and *hurts* if it lies below. The
mechanism acts if groups are seeded in each run of *seeded*; the share of them that had a success afterwards is shown.

**Limits.** One small model; an example changes the style of an answer here, and no more than that; 6,000 tokens, some four steps.

Written before its runs, and made smaller once (21 runs of three arms to 8,000 tokens, none of which was begun) for want of processor
time. Before, without learning: behind an example ``gimbal-tiny`` itself gets .014 of sums of 2 to 6 terms right, and .125 without.
After the SFT it gets .27 of sums of 3 or 4 terms right behind an example with working (.72 of its answers then show their working),
.08 behind one without, and .12 behind none (.15 show it). On the sets *again* and *sparse* of ``tokens.py``, tasks that had failed
eight times were solved by .01 of its plain and of its seeded answers alike, so these cannot show it, and this set was made.

    gimbal train xrpo_start threads=1 --name xrpo_start
    python claims/seeded.py       # goes on from claims/seeded.json; two minutes of one idle core
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
from tokens import pass_rate

from gimbal.dataflow.budgets.interval_shared import IntervalShared
from gimbal.dataflow.budgets.seeded import Seeded
from gimbal.engines.native import Native
from gimbal.environments.demonstrations import held_out_tasks, training_tasks
from gimbal.ops import TokenMean
from gimbal.policies.token import Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
START = Path("runs/xrpo_start/model")
BUDGETS = {
    "allocated": IntervalShared(name="reasoning"),
    "seeded": Seeded(inside=IntervalShared(name="reasoning"), name="reasoning", threshold=0.99),
}
TUNED = campaign.Tuned(tuple(BUDGETS), (1e-4, 3e-4), (0, 1, 2, 3, 4), "pass")
COMPARED = {
    "seeding helps": ("seeded", "allocated"),
}
MARKS = (3_000, 6_000)  # tokens

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> Run:
    base = grpo()
    return replace(
        base,
        policy=replace(base.policy, model=str(START)),
        tasks=training_tasks(size=64),
        held_out=None,
        sampling=Sampling(max_length=80),
        engine=Native(slots=64, precision="float32"),
        budget=BUDGETS[arm],
        prompts_per_step=8,
        num_generations=8,
        max_staleness=0,
        aggregation=TokenMean(),
        optimization=replace(base.optimization, learning_rate=rate),
        steps=100,  # no run comes near it
        seed=seed,
        threads=1,
    )


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    if not START.exists():
        raise SystemExit(f"{START} is not there: gimbal train xrpo_start threads=1 --name xrpo_start")
    trainer, marks = Trainer(run_of(*job)), list[float]()
    trainer.begin()
    metrics: Mapping[str, float] = {"tokens": 0.0}
    for mark in MARKS:
        while metrics["tokens"] < mark:
            metrics, _, _ = trainer.advance()
        marks.append(round(evaluated(trainer), 4))
    trainer.close()
    seeded = {name: int(metrics.get(f"budget/Seeded/{name}", 0)) for name in ("seeded", "solved")}
    mixed = 1000 * trainer.pipeline.bought["groups"] / metrics["tokens"]
    return {
        "arm": arm,
        "rate": rate,
        "seed": seed,
        "pass": round(sum(marks) / len(marks), 4),
        "end": marks[-1],
        "marks": marks,
        **seeded,
        "mixed": round(mixed, 2),
        "steps": trainer.learner.version,
    }


def evaluated(trainer: Trainer) -> float:
    return pass_rate(trainer, held_out_tasks(size=64), Native(slots=128, precision="float32"), 2)


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
