"""Does a teacher teach more per token on tasks that its student solves sometimes? (PACED with on-policy distillation)

**Setting.** ``gimbal-tiny`` and ``gimbal-tiny-teacher`` on 64 tasks of the recipes' mixed list (chain_sum with 2 to 6 terms), 8 x 4
rollouts a step, so that tasks come again; data up to one version old, one thread. Student and teacher solve only sums of 3 or 4
terms (.46 and .50; .90 and .94), a third of the list, and nearly none of the others. A run ends at the first step after which it has
drawn 12,000 tokens; pass@1 on held-out sums of 3 or 4 terms is measured (128 tasks, 2 samples each) whenever they pass a third of that.

**Arms.** *opd*: the recipe, on the list in epochs. *paced*: the recipe ``paced_opd``, which samples the list by p (1 - p) of what it
has seen of a task.

**Rule.** The figure of a run is the mean of its three marks. Each arm at the better of 1e-4 and 3e-4 by the figure of one run of seed
200, then seeds 0 to 4. *The kernel helps* if *paced* is above *opd*: the interval of the difference over all 25 pairs of seeds (exact,
96.8 %: the third from either end) lies above 0. That the kernel acts is shown by the share of groups that are sums of 3 or 4 terms.

**Limits.** As in ``distillation.py``: the teacher is the student after RL. Most of half a run passes before *paced* has met each task.

Written before its runs. Pilots of seeds 300 to 302 at 3e-4 came before it: the mean of four marks of *opd* .70, .62, .72, of *paced*
.66, .73, .83; with a prior of 1, one run, .65. A third arm, *opd* on as many tasks as *paced* draws from in effect (51 of the 64), was
dropped for time after the tuning runs of *opd* and before any of its own or of *paced*.

    python claims/paced.py --processes 1        # goes on from claims/paced.json, five minutes of a core
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import tokens

from gimbal.environments.reasoning import ReasoningGym
from gimbal.recipes.papers.data.vade import AGAIN
from gimbal.recipes.papers.distillation.opd import opd
from gimbal.recipes.papers.distillation.paced_opd import paced_opd
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
BUDGET, MARKS, TASKS = 12_000, 3, 64
OPD, PACED = "opd", "paced"
TUNED = campaign.Tuned((OPD, PACED), (1e-4, 3e-4), (0, 1, 2, 3, 4), "mean", seed=200)
COMPARED = {"the kernel helps": (PACED, OPD)}

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(job: Job) -> Run:
    arm, rate, seed = job
    run = paced_opd() if arm == PACED else replace(opd(), **AGAIN)
    assert isinstance(run.tasks, ReasoningGym)
    return replace(
        run,
        tasks=replace(run.tasks, size=TASKS),
        optimization=replace(run.optimization, learning_rate=rate),
        prompts_per_step=8,
        held_out=None,
        steps=1000,
        seed=seed,
        threads=1,
    )


def measure(job: Job) -> dict[str, Any]:
    trainer, terms, apart = Trainer(run_of(job)), Counter[int](), list[float]()
    observe = trainer.pipeline.parts.curriculum.observe

    def counted(group: Any) -> None:
        terms[len(group.task.columns["metadata"]["expression"].split()) // 2 + 1] += 1
        observe(group)

    def told(metrics: Mapping[str, float]) -> None:
        apart.append(metrics["distillation/kl"])

    trainer.pipeline.parts.curriculum.observe = counted  # type: ignore[method-assign]
    found = tokens.at_marks(trainer, BUDGET, MARKS, told)
    shares = {"within": round((terms[3] + terms[4]) / terms.total(), 3), "kl_last": round(apart[-1], 4)}
    return {**dict(zip(("arm", "rate", "seed"), job, strict=True)), **found, **shares, "steps": trainer.learner.version}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
