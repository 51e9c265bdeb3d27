"""What recorded episodes are worth beside a policy's own: RLPD against SAC, with and without the same data (arXiv:2302.02948).

**Setting.** Pendulum-v1, 2,000 steps of the environment, one move of the weights each after the first 100. The data are made here:
`gimbal/pendulum/mixed-v0`, 20,000 recorded steps (a mean return of -739). Arms: *rlpd*, the recipe; *half*, SAC with half of each
minibatch recorded, and two critics without layer norm; *given*, SAC with the data as if they lay in its buffer from the start, so that
nine tenths of a minibatch or more are recorded; *sac*, without data. Figure: the mean return of 20 held-out episodes by the mode of
the last policy.

**Rates.** Each arm at the best of 3e-4, 1e-3, 3e-3 and 1e-2, one for policy and critics, by one run of seed 100.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their figures, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0. *Data help* if *rlpd* is above *sac*; *RLPD uses them better* if it is above *given*;
*its changes to SAC matter* (ten critics, layer norm, targets from two of them, and a policy that climbs their mean, together) if it is
above *half*. That the data are drawn is shown by ``replay/prior``.

**Limits.** One task, one data set that holds good episodes, one move of the weights a step (published: 20), no sparse reward.

Written before its runs, after one pilot of each of *rlpd* and *sac* (seed 100, the recipes' 1e-3) that had -679 and -960 after 2,000
steps, -167 and -1069 after 3,000. The rate of 1e-2 was added after the first 32 runs, because all four arms had chosen the largest of
three; runs at a rate that is no longer an arm's best were taken out, and so were those of *given*, which rounded its share.

    python claims/prior.py --processes 2       # goes on from claims/prior.json; about ten minutes of one idle core
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign

from gimbal import recipes
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("rlpd", "half", "given", "sac"), (3e-4, 1e-3, 3e-3, 1e-2), (0, 1, 2, 3, 4), "return")
STEPS = 2_000
COMPARED = {
    "data help": ("rlpd", "sac"),
    "RLPD uses them better": ("rlpd", "given"),
    "its changes to SAC matter": ("rlpd", "half"),
}

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> UpdateRun:
    whole, plain = recipes.load("rlpd"), recipes.load("sac")
    assert isinstance(whole.store, Transitions) and isinstance(plain.update, SoftActorCritic)
    store = {
        "rlpd": whole.store,
        "half": whole.store,
        "given": replace(whole.store, share=None),
        "sac": plain.store,
    }[arm]
    update = whole.update if arm == "rlpd" else plain.update
    rates = replace(update.optimization, learning_rate=rate, critic_learning_rate=rate)
    return replace(plain, store=store, update=replace(update, optimization=rates), seed=seed, threads=1)


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    trainer, metrics, cpu = campaign.timed(run_of(*job), STEPS)
    after = trainer.evaluate().metrics()["eval/greedy_score"]
    trainer.close()
    drawn = round(metrics.get("replay/prior", 0.0), 3)
    found = {"arm": arm, "rate": rate, "seed": seed, "return": round(after, 1), "prior": drawn}
    return {**found, "moves": int(metrics["replay/moves"]), "cpu": round(cpu, 1)}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
