"""Streams distilled by scores: do weights by a reward (Stream-R1), or own pasts, bring later blocks nearer to the data?

**Setting.** gimbal-digits-stream, whose blocks carry on the digit of the one before (`streams.py`), is distilled into two steps a block
by distribution matching, as in `dmd2`: 24 learner steps on 16 streams of 6 blocks, 5 updates of fake and then one of the policy, one
rate for both; the base model, which sees the block before as the policy does, is the teacher. The reward is the mean over the blocks of
the log-probability of the class under a linear classifier. *plain*: each block follows the policy's own, and all count the same.
*rollouts*: the same with the loss of each stream weighed by exp(reward), tau 1. *both*, the recipe `stream_r1`: its blocks and pixels
too, by the size of the reward's slope. *real*: *plain*, but each block after the first follows a real digit (teacher forcing).

**Figures**, of 400 streams of 12 blocks, each after the policy's own, as in `streams.py`: *nearness*, the energy distance of the last
blocks to scikit-learn's digits with a minus, and their *coverage*; *kept*, *kept 6* and *kept 1*, the shares of the last, the sixth and
the first blocks that are of the class asked for, by another classifier. *seconds*: of CPU, of the learner steps.

**Rule.** Each arm at the best of 1e-4, 3e-4 and 1e-3 by *nearness* of one run of seed 100, then seeds 0 to 4. *Weighed rollouts are
nearer* than *plain* if the interval of the difference in *nearness*, over all 25 pairs of seeds (exact, 96.8 %: the third from either
end), lies above 0, and farther if it lies below; likewise *weighed pixels and blocks too* of *both* above *rollouts*, and *own pasts*
of *plain* above *real*. *They keep more* by the same rule in *kept*, of *rollouts* above *plain*.

**Limits.** Few streams and learner steps. The teacher of a block is the base model after the policy's own block, and drifts itself; the
papers' teachers see the whole film. Stream-R1's equations are ours, from its abstract. The reward judges the same class that *kept*
does, by other data.

Written before its runs, after pilots (seed 100, 3e-4, 32 streams of 6 blocks; 400 streams of 8 blocks): energy distances of the last
blocks of 0.107 (*plain*), 0.079 (*rollouts*) and 0.142 (*both*), and 0.180 with saliency alone; the linear classifier found the class
in 0.38, 0.38, 0.26 and 0.29. With 16 streams *plain* and *real* had 0.069 and 0.062, and 0.56 and 0.57.

    python claims/stream_scores.py --processes 1     # goes on from claims/stream_scores.json; ten minutes of one idle core
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
from gimbal.learning.updates.distribution_matching import DistributionMatching
from gimbal.learning.updates.reward_weighted import RewardWeighted
from gimbal.policies.paths import PathSampling
from gimbal.runtime.run import UpdateRun
from gimbal.workflows.streamed import Streamed

RECORD = Path(__file__).with_suffix(".json")
PLAIN, ROLLOUTS, BOTH, REAL = "plain", "rollouts", "both", "real"
STEPS = 24
WEIGHTED = {ROLLOUTS: RewardWeighted(saliency=False), BOTH: RewardWeighted()}

Job = tuple[str, float, int]  # arm, learning rate, seed

TUNED = campaign.Tuned((PLAIN, ROLLOUTS, BOTH, REAL), (1e-4, 3e-4, 1e-3), (0, 1, 2, 3, 4), "nearness")
COMPARED = {
    "Weighed rollouts are nearer": (ROLLOUTS, PLAIN),
    "Weighed pixels and blocks too": (BOTH, ROLLOUTS),
    "Own pasts": (PLAIN, REAL),
    "They keep more": (ROLLOUTS, PLAIN, "kept"),
}


def run_of(arm: str, rate: float, seed: int) -> UpdateRun:
    run = recipes.load("stream_r1")
    assert isinstance(run, UpdateRun) and isinstance(run.update, DistributionMatching)
    rates = replace(run.update.optimization, learning_rate=rate, critic_learning_rate=rate)
    update = replace(run.update, optimization=rates, weighted=WEIGHTED.get(arm))
    workflow = Streamed(blocks=streams.BLOCKS, past=RealSamples() if arm == REAL else None)
    return replace(run, update=update, workflow=workflow, seed=seed, steps=STEPS, held_out=None)


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    run = run_of(*job)
    policy, _, cpu = few_steps.taught(run, STEPS)
    assert isinstance(run.sampling, PathSampling)
    return {"arm": arm, "rate": rate, "seed": seed, **streams.figures(policy, run.sampling, seed), "seconds": cpu}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
