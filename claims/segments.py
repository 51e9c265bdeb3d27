"""Does a policy prove more if it learned proofs in segments, than by single tactics or whole? And do rollouts help? (SEG-ATP)

**Setting.** 2,000 theorems of propositional logic with proofs of three to ten tactics, and an exact prover
(``environments/natural_deduction.py``). SFT of gimbal-tiny-memory from nothing, minibatches of 32, on 75,000 tokens, prompts
counted. 64 held-out theorems, none of which is a trained one in other letters, are to be proved by best-first search: four answers to
the best state, until 192 tokens are drawn (``ProofSearch``).

**Arms.** *segments*: the tactics from a state to the next change of the number of open goals. *tactics*: one tactic to each state.
*whole*: the proof to the theorem. Nothing else differs; the search is the same. *rollouts*: the policies of *tactics*, and a search
in which an answer that changed the number of open goals is followed by up to four more, until one changes it again.

**Figures.** *proved*: the share of held-out theorems. *alone*: that of *whole* by independent proofs of each theorem, as many as
these tokens pay for.

**Rule.** Each arm at the better of two rates by *proved* of seed 100, then seeds 0 to 4; *rollouts* at the rate of *tactics*, of
which it has the policies. An arm is above another if the interval of the difference over all 25 pairs of seeds (exact, 96.8 %: the
third from either end) lies above 0. *Segments prove more than tactics*, *segments prove more than whole proofs, in one search* and
*rollouts prove more than none* are this of *proved*.

**Limits.** A model of 105,000 weights that has learned from nothing for a hundred steps, and a calculus of six tactics in two
letters; not Lean, and no pretrained model. 64 theorems: a share has a standard error of .06. In training prompts are counted, so that
*tactics*, which reads a state for each tactic, sees the fewest proofs; in the search they are not. One budget of each.

Written before its runs, after pilots with seed 100, 5e-3, 250,000 tokens, minibatches of 64: by 96 tokens a theorem *segments* proved
.36 and *tactics* .36, *rollouts* .39; by 192 *tactics* .44 and *rollouts* .55. *whole* had no pilot.

**After the runs**: *whole* is handicapped by the search, which asks it for whole proofs of states in the middle: it proves less than by
independent proofs (*alone*). Beside these *segments* are .11 above (.02 to .19) and *tactics* .16 (.06 to .22), which is not in the
rule. The policies of *rollouts* are those of *tactics*; in pairs of one seed they proved more in three of five and never less. All arms
chose the larger rate.

    python claims/segments.py     # goes on from claims/segments.json; five minutes of one idle core
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import torch

from gimbal import recipes
from gimbal.environments.natural_deduction import GOAL, Theorems
from gimbal.environments.segments import Segments
from gimbal.runtime.evaluate import evaluate_held_out
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run
from gimbal.workflows.proof_search import ProofSearch

RECORD = Path(__file__).with_suffix(".json")
SEGMENTS, TACTICS, WHOLE, ROLLOUTS = "segments", "tactics", "whole", "rollouts"
TUNED = campaign.Tuned((SEGMENTS, TACTICS, WHOLE, ROLLOUTS), (2e-3, 5e-3), (0, 1, 2, 3, 4), "proved")
COMPARED = {
    "segments prove more than tactics": (SEGMENTS, TACTICS),
    "segments prove more than whole proofs, in one search": (SEGMENTS, WHOLE),
    "rollouts prove more than none": (ROLLOUTS, TACTICS),
}
THEOREMS, PROMPTS, TOKENS, SEARCHED = 2_000, 32, 75_000, 192
SEARCH = ProofSearch(tokens=SEARCHED)
CUTS: dict[str, dict[str, Any]] = {TACTICS: {"most": 1}, SEGMENTS: {}, WHOLE: {"at_goals": False}}

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> Run:
    run = recipes.load("seg_atp")
    tasks = Segments(tasks=Theorems(size=THEOREMS, seed=seed), goal=GOAL, **CUTS[arm])
    assert run.held_out is not None
    return replace(
        run,
        tasks=tasks,
        held_out=replace(run.held_out, workflow=SEARCH),
        optimization=replace(run.optimization, learning_rate=rate),
        prompts_per_step=PROMPTS,
        steps=round(TOKENS / (PROMPTS * sum(lengths(tasks)))),
        seed=seed,
        threads=1,
    )


def lengths(tasks: Segments) -> tuple[float, float]:
    """The mean tokens of a prompt and of an answer with its end; each letter is a token."""
    rows = [tasks[n] for n in range(len(tasks))]
    prompt = sum(len(row.prompt) for row in rows) / len(rows)
    return prompt, sum(len(row.columns["completion"]) + 1 for row in rows) / len(rows)


def measure(job: Job) -> dict[str, Any]:
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    begun, run = time.process_time(), run_of(*job)
    trainer, metrics = Trainer(run), dict[str, float]()
    for _ in range(run.steps):
        metrics, *_ = trainer.advance()

    def proved(search: ProofSearch) -> float:
        assert run.held_out is not None
        other = replace(run, held_out=replace(run.held_out, workflow=search))
        return round(evaluate_held_out(other, trainer.policy, weights=trainer.learner).score, 4)

    found = {"proved": proved(SEARCH)}
    if job[0] == TACTICS:
        found["rolled"] = proved(replace(SEARCH, rollout=4))
    if job[0] == WHOLE:
        found["alone"] = proved(replace(SEARCH, candidates=round(SEARCHED / lengths(run.tasks)[1])))
    trainer.close()
    return {
        **dict(zip(("arm", "rate", "seed"), job, strict=True)),
        **found,
        "steps": run.steps,
        "tokens": int(metrics["tokens"]),
        "cpu": round(time.process_time() - begun, 1),
    }


def left(runs: campaign.Runs) -> Iterator[list[Job]]:
    """What is not recorded of the arms that are trained, one arm after the other."""
    for arm in CUTS:
        for part in (0, 1):  # tuning, and the fresh seeds by what it found
            jobs = list(TUNED.left(beside(runs)))[part]
            yield [job for job in jobs if job[0] == arm]


def beside(runs: campaign.Runs) -> campaign.Runs:
    """With the arm of rollouts: the policies of *tactics*, at the rate that is chosen for these."""
    rolled = [{**run, "arm": ROLLOUTS} for run in runs if run["arm"] == TACTICS]
    return runs + [run if run["seed"] == TUNED.seed else {**run, "proved": run["rolled"]} for run in rolled]


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, campaign.described)
