"""Streams that learn from a discriminator alone: what does it take for them to keep their class? (ARC-Forcing)

**Setting.** Streams of gimbal-digits-stream, as in `streams.py`: 24 learner steps, each on 32 streams of 6 blocks of four steps by the
ODE, told the class for the first block alone. No reward and no teacher: the recipe `arc_forcing`, a discriminator that compares each
predicted block with a real digit of the stream's class, after the same block, at a rate of 1e-3. *own*: each block follows the policy's
own, and the discriminator is taught by shuffled conditions too (contrast 1). *real*: the same, but each block except the first follows
a real digit of the class (teacher forcing). *blind*: as *own*, with contrast 0, so that nothing makes the discriminator read the block
before.

**Figures**, as in `streams.py`, of 400 streams of 12 blocks after own blocks: *kept*, the share of last blocks of the class asked for
by the five nearest odd rows of the data; *kept 6* and *kept 1* of the sixth and the first; *nearness* and *coverage* of the last.

**Rule.** Each arm at the best of 3e-5, 1e-4 and 3e-4 by *kept* of one run of seed 100, then seeds 0 to 4. *Shuffled conditions keep the
class* if the interval of the difference in *kept*, over all 25 pairs of seeds (exact, 96.8 %: the third from either end), lies above 0,
and is refuted if it lies below. *Own pasts drift less* and, in *nearness*, *own pasts stay nearer to the data* by the same rule.

**Limits.** The discriminator is shown the digits that *nearness* and *kept* are measured with (*kept* by odd rows; it sees all). One
rate and one start of it. Equal learner steps; where any arm ends is not measured. Arms differ in their rates, and with them in
*nearness* and *coverage*: the tuning runs at one rate each say less of *own pasts stay nearer to the data* (+.01, +.09, -.03), and
*blind*, at the lowest rate, ends nearer to the data than *own* (by .05) and covers more of it (by .14). *real* sits at the highest rate
tried.

Written before its runs, after pilots (seed 100): *kept* of .78 at 1e-4, .73 at 3e-4, .71 at 3e-5; *real* .77 and *blind* .49 at 1e-4;
nearness -.10, -.16, -.06, -.19 and -.10. With the discriminator at 3e-4, .78 and -.20.

**After the runs**: that *blind* ends nearer to the data than *own*, and covers more, is decided by the recorded seeds: *own* is below
it in *nearness* by .053 (.012 to .088) and in *coverage* by .142 (.090 to .168).

    python claims/forcing.py --processes 1     # goes on from claims/forcing.json; ten minutes of one idle core
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import few_steps
import streams

from gimbal import recipes
from gimbal.dataflow.real_samples import RealSamples
from gimbal.learning.updates.adversarial_forcing import AdversarialForcing
from gimbal.policies.paths import PathSampling
from gimbal.runtime.run import UpdateRun
from gimbal.workflows.streamed import Streamed

RECORD = Path(__file__).with_suffix(".json")
OWN, REAL, BLIND = "own", "real", "blind"

Job = tuple[str, float, int]  # arm, learning rate, seed

TUNED = campaign.Tuned((OWN, REAL, BLIND), (3e-5, 1e-4, 3e-4), (0, 1, 2, 3, 4), "kept")
COMPARED = {
    "Shuffled conditions keep the class": (OWN, BLIND),
    "Own pasts drift less": (OWN, REAL),
    "Own pasts stay nearer to the data": (OWN, REAL, "nearness"),
}


def run_of(arm: str, rate: float, seed: int) -> UpdateRun:
    run = recipes.load("arc_forcing")
    assert isinstance(run, UpdateRun) and isinstance(run.update, AdversarialForcing)
    rates = replace(run.update.optimization, learning_rate=rate, critic_learning_rate=1e-3)
    update = replace(run.update, optimization=rates, contrast=0.0 if arm == BLIND else 1.0)
    workflow = Streamed(blocks=streams.BLOCKS, past=RealSamples() if arm == REAL else None)
    return replace(run, update=update, workflow=workflow, seed=seed, steps=streams.STEPS, held_out=None)


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    run = run_of(*job)
    policy, _, cpu = few_steps.taught(run, streams.STEPS)
    assert isinstance(run.sampling, PathSampling)
    return {"arm": arm, "rate": rate, "seed": seed, **streams.figures(policy, run.sampling, seed), "seconds": cpu}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
