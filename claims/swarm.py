"""Does a run learn more from the tokens that it draws if it also trains on the rollouts of another run? (SAPO)

**Setting.** That of tokens.py: gimbal-tiny on *again* (64 tasks of chain_sum, 2 to 6 terms) and on *sparse* (128 tasks, of which the
first policy answers .045), steps of 8 tasks x 8 rollouts, plain GRPO with one update a batch, fresh data, float32 sampler. A run ends
at the first step after which it has drawn 36,000 tokens; held-out pass@1 is measured (128 tasks, 2 samples each) whenever they pass a
quarter of that.

**Arms.** *plain*: a run on its own. *swarm*: two runs of *plain* that differ in their seed each take up to 8 groups of the other's
last round beside their own 8 (``Swarm``, as in the recipe ``sapo``: truncated importance weights; groups without a signal are left
out). Only the first of the two is measured, and only what it draws itself counts. *double*: a run on its own that draws 16 tasks a
step and 72,000 tokens, measured at quarters of that: as many steps and as much data as *swarm*, all its own.

**Rule.** The figure of a run is the mean of its four marks. Each arm at the best of 1e-4, 3e-4 and 1e-3 by the figure of one run
of seed 100, then seeds 0 to 4. *Sharing helps* if *swarm* is above *plain*: the interval of the difference over all 25 pairs of seeds
(exact, 96.8 %: the third from either end) lies above 0. *Own data are better* if *double* is above *swarm*. Each set is asked by
itself. That the store acts is shown by the groups it took of the peer, of all that trained.

**Limits.** Two nodes of one model, which the paper calls a swarm of eight; together they draw twice what *plain* draws, so a saving is
one of a node and not of all. The peers go in step, each round read one step after it was written.

Written before its runs.

    python claims/swarm.py --processes 1        # goes on from claims/swarm.json; about half an hour of one idle core
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import tokens

from gimbal.dataflow.replay.swarm import Swarm
from gimbal.learning.learner import NotFinite
from gimbal.objectives import TruncatedWeight
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
KINDS, ARMS = ("again", "sparse"), ("plain", "swarm", "double")
TUNED = campaign.Tuned(
    tuple(f"{kind}, {arm}" for kind in KINDS for arm in ARMS), (1e-4, 3e-4, 1e-3), (0, 1, 2, 3, 4), "mean"
)
COMPARED = {
    f"{kind}: {question}": (f"{kind}, {one}", f"{kind}, {other}")
    for kind in KINDS
    for question, one, other in (("sharing helps", "swarm", "plain"), ("own data are better", "double", "swarm"))
}
APART = 1000  # between the seeds of two peers

Job = tuple[str, float, int]  # set and arm, learning rate, seed


def run_of(job: Job) -> Run:
    (kind, arm), rate, seed = job[0].split(", "), job[1], job[2]
    plain = tokens.run_of(tokens.Job(kind, "plain", rate, seed))
    return replace(plain, prompts_per_step=16) if arm == "double" else plain


def peers(job: Job, directory: str) -> list[Run]:
    """The runs of a job, the one that is measured first."""
    run = run_of(job)
    if not job[0].endswith("swarm"):
        return [run]
    store, correction = Swarm(taken=8, shared=8, directory=directory), TruncatedWeight()
    one = replace(run, store=replace(store, name="a", peers=("b",)), correction=correction)
    return [one, replace(one, store=replace(store, name="b", peers=("a",)), seed=run.seed + APART)]


def measure(job: Job) -> dict[str, Any]:
    kind, arm = job[0].split(", ")
    budget = tokens.BUDGET * (2 if arm == "double" else 1)
    marks, spent, taken, ended = list[float](), 0.0, 0.0, ""
    with tempfile.TemporaryDirectory() as directory:
        trainers = [Trainer(run) for run in peers(job, directory)]
        try:
            for trainer in trainers:
                trainer.begin()
            while len(marks) < tokens.MARKS:
                metrics, *_ = [trainer.advance()[0] for trainer in trainers]
                spent, taken = metrics["tokens"], metrics.get("replay/used", 0.0)
                if spent >= (len(marks) + 1) * budget / tokens.MARKS:
                    marks.append(tokens.evaluated(trainers[0], kind, 2))
        except NotFinite as error:
            ended = str(error).partition(";")[0]
            marks += [0.0] * (tokens.MARKS - len(marks))
        finally:
            for trainer in trainers:
                trainer.close()
    steps = trainers[0].learner.version
    figures = {"mean": round(statistics.fmean(marks), 4), "end": round(marks[-1], 4), "marks": marks}
    shared = round(taken / (taken + steps * trainers[0].run.prompts_per_step), 3)
    return {"arm": job[0], "rate": job[1], "seed": job[2], **figures, "steps": steps, "taken": shared, "ended": ended}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
