"""Does it pay to go by the stage at which an attempt failed? Repairs, new plans, and both (PlanAndRepair, after CVE2PoC)

**Setting.** gimbal-tiny as it ships, not trained. A sum of four terms of two digits: a planner adds the first two, and an executor,
which sees that number and the other terms, ends the sum (``environments/shared_sums.py``). Both often guess or slip. Only sums whose
first two terms make 10 to 99 are taken, since the model was taught two digits and cannot copy three. An execution is checked in
three stages (``SumStages``): its format, its working (each step true, and the terms in order), its answer. Up to 8 executions a task
(``PlanAndRepair(attempts=8)``), ended by the first that passes all three.

**Arms** differ in when a plan is given up. *routed*: when its execution passed format and working and the answer was wrong, and
never otherwise. *repair*: never. *new plan*: after each execution. *two a plan*, *four a plan*: after so many executions, whatever they
came to.

**Figures.** The share of 256 tasks solved within 8 executions (*solved*), within 2 and 4; plans and tokens a task.

**Rule.** Seeds 0 to 4, each with tasks and draws of its own; the arms of a seed have the same tasks. An arm is above another if the
interval of the difference of *solved* over all 25 pairs of seeds (exact, 96.8 %: the third from either end) lies above 0. *Routing
beats one loop*: *routed* is above *repair*, and above *new plan*. *It is the stage, not the number of plans*: *routed* is above *two a
plan*, and above *four a plan*. Nothing is tuned: *routed* has to beat each number of executions a plan that was tried.

**Limits.** One model of a million weights and one task, whose two ways to fail were known when the stages were written. The model
reads neither what was tried nor what came of it, so its prompts do not say it, and a repair is another draw under the same plan;
published are language models that read logs, and one that picks the loop. The last stage is the task's own check: who is
allowed 8 executions and told when to stop has to be compared at equal numbers, as here. No weights are trained.

Written before its runs, after pilots of seed 0 on 88 other tasks: within 8 executions .69 *routed*, .43 *repair*, .60 *new plan*,
.59 *two a plan*, .61 *four a plan*. On sums of any size they were .23, .12, .20, .18 and .20: three digits were never copied. A
model that ``rema`` had trained for 12 steps solved all 88 within 4 executions when *routed* and by *new plan*, and .84 by *repair*.

**After the runs**: *routing beats one loop* is undecided as a whole: above repairs alone by .22, above new plans alone by .05, whose
interval has 0 in it. *It is the stage* holds, beside two a plan by a hair (.004). *routed* takes less than half of the plans of *new
plan*, and a tenth fewer tokens.

    python claims/loops.py     # goes on from claims/loops.json; five minutes of one idle core
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import campaign
import torch

from gimbal import recipes
from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.environments.shared_sums import HANDED, SharedSums, SumStages
from gimbal.records import Episode, Task
from gimbal.workflows.plan_and_execute import PLANNER, PlanAndExecute
from gimbal.workflows.plan_and_repair import PlanAndRepair
from gimbal.workflows.runner import Driven

RECORD = Path(__file__).with_suffix(".json")
ATTEMPTS, TASKS, APART = 8, 256, 10_000
ROUTED, REPAIR, NEW, TWO, FOUR = "routed", "repair", "new plan", "two a plan", "four a plan"
ARMS: Mapping[str, tuple[float, int]] = {  # replan, tries
    ROUTED: (0.5, ATTEMPTS),
    REPAIR: (1.0, ATTEMPTS),
    NEW: (1.0, 1),
    TWO: (1.0, 2),
    FOUR: (1.0, 4),
}
COMPARED = {
    "routing beats one loop": (REPAIR, NEW),
    "it is the stage, not the number of plans": (TWO, FOUR),
}
SEEDS = (0, 1, 2, 3, 4)

Job = tuple[str, int]


def workflow(arm: str) -> PlanAndRepair:
    replan, tries = ARMS[arm]
    inside = recipes.load("rema").workflow
    assert isinstance(inside, PlanAndExecute)
    return PlanAndRepair(
        inside=inside,
        checks=SumStages(),
        repair=HANDED,
        again="{prompt}",
        attempts=ATTEMPTS,
        tries=tries,
        replan=replan,
    )


@cache
def tasks(seed: int) -> list[Task]:
    """The first so many tasks behind the seed's place whose first two terms make a number of two digits."""
    sums = recipes.load("rema").tasks
    assert isinstance(sums, SharedSums)
    found, place = list[Task](), seed * APART
    while len(found) < TASKS:
        task, place = sums[place], place + 1
        one, sign, other = task.columns["metadata"]["expression"].split()[:3]
        if 10 <= int(one) + (int(other) if sign == "+" else -int(other)) <= 99:
            found.append(task)
    return found


def measure(job: Job) -> dict[str, Any]:
    arm, seed = job
    torch.set_flush_denormal(True)
    run = recipes.load("rema")
    policy = run.policy.load()
    live = Driven(engine=Native(slots=128, precision="float32"), workflow=workflow(arm)).start(policy)
    live.load(0, policy.state_dict())
    begun = time.process_time()
    for place, task in enumerate(tasks(seed)):
        live.submit(Request(group=place, task=task, sample=0, sampling=run.sampling, seed=seed))
    episodes = [item.outcome for item in drained(live).values()]
    assert len(episodes) == TASKS and all(isinstance(one, Episode) for one in episodes)
    needed = [executions(episode) for episode in episodes if episode.score]
    within = {f"within_{most}": round(sum(n <= most for n in needed) / TASKS, 4) for most in (2, 4)}
    return {
        "arm": arm,
        "seed": seed,
        "solved": round(len(needed) / TASKS, 4),
        **within,
        "plans": round(sum(row.role == PLANNER for one in episodes for row in one.rows) / TASKS, 2),
        "tokens": round(sum(one.drawn for one in episodes) / TASKS, 1),
        "cpu": round(time.process_time() - begun, 1),
    }


def executions(episode: Episode) -> int:
    """How many attempts it took; a planner that handed nothing over took one."""
    planned = [row.role == PLANNER for row in episode.rows]
    idle = sum(now and then for now, then in pairwise(planned))
    return planned.count(False) + idle


def left(runs: campaign.Runs) -> Iterator[list[Job]]:
    done = {(run["arm"], run["seed"]) for run in runs}
    yield [(arm, seed) for seed in SEEDS for arm in ARMS if (arm, seed) not in done]


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, campaign.described)
