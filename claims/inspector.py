"""Is an inspector that is paid for what it changes better than one that is paid for what comes out? (PRISMA's residual reward)

**Setting.** The recipe ``inspector`` with 24 steps: gimbal-tiny, frozen, answers a sum; an inspector that begins as the same model
reads the answer, and says by its first token whether the solver tries again, once. Of the solver's answers some .35 are right: nearly
all that it works out, and one in ten of those that it guesses. The groups of GRPO are 8 inspections of one task, each of an answer of
its own.

**Arms** differ in the reward alone. *residual*: whether the last answer is right, minus whether the first was. *outcome*: whether the
last answer is right.

**Figures.** The share of 192 held-out tasks, 2 samples each, whose last answer is right after training (*right*), and of the same
tasks, one sample each, when no answer is tried again (*alone*).

**Rule.** Each arm at the best of 2e-4, 5e-4 and 1e-3 by *right* of one run of seed 100, then seeds 0 to 4. *The residual is better*:
the interval of the difference of *right* over all 25 pairs of seeds (exact, 96.8 %: the third from either end) lies above 0.
*Inspection helps*: *right* is above *alone* in all five seeds of *residual*.

**Limits.** A model of a million weights; a guess shows in how an answer is written, so that the inspector need not check a sum.
Published are several roles that search and answer, and a verdict that is also held against evidence. Where all inspectors of a group
read one answer, both rewards give one advantage. Nothing is paid for a second try.

Written before its runs, after one pilot of *residual* at 3e-4 (16 tasks a step, seed 0): the reward of a batch rose from 0 to .16
within 20 steps.

**After the runs**: *inspection helps* holds: *right* is above *alone* in all five seeds of *residual*, by .02 to .09; of
*outcome* in all five too, by .001 to .10. The tuning run of *outcome* at 1e-3 (.59) was above all that followed at that rate (.36 to
.50).

    python claims/inspector.py     # goes on from claims/inspector.json; eleven minutes of one idle core
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import torch

from gimbal import recipes
from gimbal.environments.reasoning import ReasoningGym
from gimbal.runtime.evaluate import evaluate_held_out
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run
from gimbal.workflows.inspection import Inspection

RECORD = Path(__file__).with_suffix(".json")
RESIDUAL, OUTCOME = "residual", "outcome"
TUNED = campaign.Tuned((RESIDUAL, OUTCOME), (2e-4, 5e-4, 1e-3), (0, 1, 2, 3, 4), "right")
COMPARED = {"the residual is better": (RESIDUAL, OUTCOME)}
STEPS, TASKS = 24, 192

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> Run:
    run = recipes.load("inspector")
    assert isinstance(run.workflow, Inspection) and run.held_out is not None
    assert isinstance(run.held_out.tasks, ReasoningGym)
    return replace(
        run,
        workflow=replace(run.workflow, residual=arm == RESIDUAL),
        held_out=replace(run.held_out, tasks=replace(run.held_out.tasks, size=TASKS)),
        optimization=replace(run.optimization, learning_rate=rate),
        steps=STEPS,
        seed=seed,
        threads=1,
    )


def measure(job: Job) -> dict[str, Any]:
    torch.set_flush_denormal(True)
    begun = time.process_time()
    trainer = Trainer(run := run_of(*job))
    for _ in range(run.steps):
        trainer.advance()
    found = {"right": right(trainer, run), "alone": right(trainer, run, samples=1, redo="(?!)")}
    trainer.close()
    return {
        **dict(zip(("arm", "rate", "seed"), job, strict=True)),
        **found,
        "cpu": round(time.process_time() - begun, 1),
    }


def right(trainer: Trainer, run: Run, samples: int = 2, **changes: str) -> float:
    """The share of held-out answers that are right in the end, with the present inspector."""
    assert run.held_out is not None and isinstance(run.held_out.workflow, Inspection)
    held_out = replace(run.held_out, samples=samples, workflow=replace(run.held_out.workflow, **changes))
    found = evaluate_held_out(replace(run, held_out=held_out), trainer.policy, weights=trainer.learner)
    return round(found.score, 4)


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
