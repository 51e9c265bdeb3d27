"""Which past cases to read: learned from outcomes, or by the likeness of texts? (AgentFly)

**Setting.** gimbal-tiny-memory, frozen, answers a stream of 120 tasks of 12 families, one after the other. The memory begins with 60
solved tasks. Nothing but past cases tells the digit of a family; three tasks in ten have the topic of another family, so that most of
their neighbours by text mislead. Each attempt reads four cases of the 256 newest and becomes one itself, whether it was right or
wrong. The model copies the digit of one of the cases it reads. Arms: *learned*, the workflow `CaseMemory` with LearnedRetrieval;
*cosine*, the same with CosineRetrieval; *successes*, the cosine, where failures are read only if too few cases were right; *none*,
without cases.

**Figures.** *right*, the share of the last 60 tasks answered rightly; *first*, that of the first 60. *alike*, the share of the cases
read in the last 60 that are right ones of the task's own family, shows what retrieval does.

**Rule.** *learned* at the best of the rates .01, .03 and .1 by *right* in a stream of seed 100 (the others have nothing to tune), then
the streams of seeds 0 to 4, each with families of its own. An arm is above another if the interval of the difference of *right*, over
all 25 pairs of seeds (exact, 96.8 %: the third from either end), lies above 0. *Learning helps* if *learned* is above *cosine*, and *it
does more than leave out failures* if *learned* is above *successes*; *cases help* if *cosine* is above *none*.

**Limits.** Q compares letters at the same place of two prompts, which suits these tasks: the family's letter stands at one place. A
model of 105,000 weights that copies; published: GPT-4.1 and o3, a text encoder, research questions.

Written before its runs. In pilots (seed 100) with an empty memory at the start, *learned* ended at .15 with four cases and at .29 with
one, *cosine* at .17 with one: who has read no right case copies a wrong one again and again. So the memory begins with solved tasks.
With these a pilot of 200 tasks with a copier in place of the model (seed 100) had .80 for *cosine*, .98 for *learned* at .03, and .24
and less at .1 and above, where a few failures early on make Q prefer cases that failed.

    python claims/cases.py --processes 1     # goes on from claims/cases.json; two minutes of one idle core
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import campaign
import numpy as np

from gimbal import recipes
from gimbal.engines.base import Request, drained
from gimbal.environments.cases import Families
from gimbal.policies.token import Sampling
from gimbal.records import Episode
from gimbal.rewards.exact import ExactAnswer
from gimbal.workflows.base import Attempt
from gimbal.workflows.case_memory import CaseMemory
from gimbal.workflows.retrieval import CosineRetrieval, LearnedRetrieval, SuccessesFirst
from gimbal.workflows.runner import Driven, Runner

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("learned",), (0.01, 0.03, 0.1), (0, 1, 2, 3, 4), "right")
OTHERS, SOLVED, TASKS, HALF = ("cosine", "successes", "none"), 60, 120, 60
ANSWER = ExactAnswer(opening="", closing="")
COMPARED = {
    "learning helps": ("learned", "cosine"),
    "it does more than leave out failures": ("learned", "successes"),
    "cases help": ("cosine", "none"),
}

Job = tuple[str, float, int]  # arm, rate, seed


def workflow_of(arm: str, rate: float) -> CaseMemory:
    retrieval = {"learned": LearnedRetrieval(rate=rate), "successes": SuccessesFirst()}.get(arm, CosineRetrieval())
    return CaseMemory(retrieval=retrieval, reward=ANSWER, read=0 if arm == "none" else 4)


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    run = recipes.load("agentfly")
    policy, tasks = run.policy.load(), Families(families=12, seed=seed, size=SOLVED + TASKS)
    workflow = workflow_of(arm, rate)
    live = Driven(engine=run.engine, workflow=workflow).start(policy)
    assert isinstance(live, Runner)
    live.load(0, policy.state_dict())
    solved = (tasks[index] for index in range(SOLVED))
    live.memory = {**live.memory, "cases": tuple((t.id, t.prompt, t.answer, 1.0) for t in solved)}
    began, right, alike = time.process_time(), list[float](), list[float]()
    for index in range(SOLVED, SOLVED + TASKS):
        task, memory = tasks[index], live.memory
        live.submit(Request(group=index, task=task, sample=0, sampling=Sampling(max_length=4), seed=seed))
        ((_, item),) = drained(live).items()
        assert isinstance(item.outcome, Episode)
        right.append(float(item.outcome.text.strip() == task.answer))
        if index >= SOLVED + HALF:
            own = Attempt(group=index, task=task, samples=(0,), sampling=run.sampling, seed=seed, memory=memory)
            alike += [float(c.score >= 0.5 and c.asked[4] == task.prompt[4]) for c in workflow.chosen(own)]
    live.close()
    found = {"right": np.mean(right[HALF:]), "first": np.mean(right[:HALF]), "alike": np.mean(alike) if alike else 0.0}
    spent = round(time.process_time() - began, 1)
    return {"arm": arm, "rate": rate, "seed": seed} | {n: round(float(x), 4) for n, x in found.items()} | {"cpu": spent}


def left(runs: campaign.Runs) -> Any:
    done = {(run["arm"], run["seed"]) for run in runs}
    yield from TUNED.left(runs)
    yield [(arm, 0.0, seed) for seed in TUNED.seeds for arm in OTHERS if (arm, seed) not in done]


def fresh(runs: campaign.Runs, arm: str) -> campaign.Runs:
    """The runs of the fresh seeds, in the order of seeds."""
    own = TUNED.fresh(runs, arm) if arm == "learned" else [run for run in runs if run["arm"] == arm]
    return sorted(map(dict, own), key=lambda run: run["seed"])


def above(runs: campaign.Runs, one: str, other: str) -> tuple[float, float, float] | None:
    """By how much one arm is above another, and its interval, once all seeds of both are there."""
    mine, theirs = ([run["right"] for run in fresh(runs, arm)] for arm in (one, other))
    return campaign.shift(mine, theirs) if len(mine) == len(theirs) == len(TUNED.seeds) else None


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, campaign.described)
