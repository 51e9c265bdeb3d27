"""What additions to soft actor-critic bring early: SimBa's networks, replay by age and by errors; and EXPO beside RLPD.

**Setting.** Pendulum-v1, 2,000 steps of the environment, one move of the weights each after the first 100. Arms: *sac*, the recipe;
*normalized*, with observations in units of their spread; *simba*, that with the recipe's residual networks and weight decay
(arXiv:2410.09754); *by age*, SAC whose replay weights fall over 1,000 steps to a tenth (Sample Weight Decay, arXiv:2604.01913);
*by errors*, with prioritized replay (arXiv:1511.05952, alpha .6, beta .4); *rlpd* and *expo* (arXiv:2302.02948, 2507.07986), the
recipes, with half of each minibatch of `gimbal/pendulum/mixed-v0`. Figure: the mean return of 20 held-out episodes by the mode of the
last policy.

**Rates.** Each arm at the best of 3e-4, 1e-3, 3e-3 and 1e-2, one for policy and critics, by one run of seed 100.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their figures, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0. *Normalizing helps* if *normalized* is above *sac*; *SimBa's networks help* if *simba*
is above *normalized*; *replay by age helps* and *replay by errors helps* if these are above *sac*; *EXPO helps* if *expo* is above
*rlpd*. ``replay/importance`` below 1 shows that errors weigh, ``proposals/edited`` that edits are played.

**Limits.** One task of three observations, in which no network of these sizes is too small and no buffer is old; one move of the
weights a step. What the papers claim is of larger networks, longer runs and many moves a step.

Written before its runs, after pilots of *simba* (seed 0 at 3e-4: -951, -222 and -524 after 1,500, 2,250 and 3,000 steps; seed 1 at
1e-3: -674 and -607 after 1,860 and 2,480) and of *sac* (seed 1 at 1e-3: -1189 and -814), and one of *expo* (-1326 after 1,000).

    python claims/actor_critics.py       # goes on from claims/actor_critics.json; about half an hour of one core
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign

from gimbal import recipes
from gimbal.dataflow.replay.preferences import AgeDecay, Prioritized
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.policies.squashed import SquashedGaussian
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
ARMS = ("sac", "normalized", "simba", "by age", "by errors", "rlpd", "expo")
TUNED = campaign.Tuned(ARMS, (3e-4, 1e-3, 3e-3, 1e-2), (0, 1, 2, 3, 4), "return")
STEPS = 2_000
COMPARED = {
    "normalizing helps": ("normalized", "sac"),
    "SimBa's networks help": ("simba", "normalized"),
    "replay by age helps": ("by age", "sac"),
    "replay by errors helps": ("by errors", "sac"),
    "EXPO helps": ("expo", "rlpd"),
}

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> UpdateRun:
    run = recipes.load(arm if arm in ("simba", "rlpd", "expo") else "sac")
    assert isinstance(run, UpdateRun) and isinstance(run.store, Transitions)
    if arm == "normalized":
        assert isinstance(run.policy, SquashedGaussian)
        run = replace(run, policy=replace(run.policy, normalize=True))
    if arm in ("by age", "by errors"):
        preference = AgeDecay(span=1_000.0) if arm == "by age" else Prioritized()
        run = replace(run, store=replace(run.store, preference=preference))
    rates = replace(run.update.optimization, learning_rate=rate, critic_learning_rate=rate)
    return replace(run, update=replace(run.update, optimization=rates), seed=seed, threads=1)


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    trainer, metrics, cpu = campaign.timed(run_of(*job), STEPS)
    after = trainer.evaluate().metrics()["eval/greedy_score"]
    trainer.close()
    found = {"arm": arm, "rate": rate, "seed": seed, "return": round(after, 1), "moves": int(metrics["replay/moves"])}
    acts = {"importance": "replay/importance", "edited": "proposals/edited"}
    found |= {name: round(metrics[key], 3) for name, key in acts.items() if key in metrics}
    return {**found, "cpu": round(cpu, 1)}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
