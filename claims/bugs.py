"""A red team that values words by what chance finds behind them: does it find more triggers of bugs than one that wants reward? (DAERT)

**Setting.** `environments/planted_bugs.py`: commands of four words of eight, of 4,096 about 300 trigger one of five bugs; 2,000
queries, 50 steps of 40 commands. Which bugs there are goes with the seed. Networks of 64 x 64. Arms: *chance*, the recipe `daert`:
values of words where all later ones are by chance, drawn by softmax(Q / .3); *best*, the same with Q-learning's values
(`update.chance` = 0); *reward*, `Reinforce` on the reward less its group's mean, in groups of eight, on-policy; *entropy .1* and
*entropy .3*, that with a bonus on the entropy of each word's distribution; *flow*, `FlowBalance` with a temperature of .2, which draws
commands in proportion to exp(reward / .2).

**Figures.** *triggers*: how many different commands of all 2,000 triggered a bug. *hits*: how many of the last 400 did. *bugs*: of the
five, those that ten queries or more triggered.

**Rates.** Each arm at the best of 1e-3, 3e-3, 1e-2, 3e-2 and 1e-1 by *triggers* of one run of seed 100. The last one was added after a
first whole record, in which the largest, 3e-2, was the best of *entropy .3* and of *flow*, with the same verdicts.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their figures, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0. *More than by reward alone* if *chance* is above *reward* in *triggers*; *the mean
instead of the best* if it is above *best*; *more than by a bonus* if it is above both *entropy*; *more than a flow* if above *flow*.

**Limits.** One kind of program, of 4,096 commands, where words by chance trigger a bug 300 times in 4,096, so that every bug is met
soon: what is counted is how many ways into it are found. *chance* and *best* reuse old queries, 20 moves a step, where the others
move once a step. The temperature of values, the bonus and the flow's temperature are from the pilots, and not tuned.

Written before its runs, after pilots of seeds 100 and 101 at one or three rates: 264 and 253 different triggers with a temperature of
.2 and values by chance, 267 and 274 with .3, 165 and 192 with .1; 205 and 185 by the best value with .2, 259 and 225 with .3, 226
and 198 with .5 (these in plain torch); 151 by reward alone at its best of three rates, 246 and 216 with a bonus of .3, 249 with a flow.

**Not kept.** The form of this method for language models (ROVER's loss: the log-ratio to a reference, fitted to the advantage and the
mean log-ratio of the next word) had 238 and 225 in these pilots with a temperature of .3, and 240 and 219 without the mean of the next
word, about as a bonus on entropy: the mean of a log-ratio is never above 0, so it is no value, and what acted was the pull to the
reference. So it is not in the library.

    python claims/bugs.py       # goes on from claims/bugs.json; three minutes of one core
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import numpy as np
import torch

from gimbal import recipes
from gimbal.dataflow.replay.once import Once
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.environments.planted_bugs import triggered
from gimbal.learning.updates.dqn import DQN
from gimbal.objectives import EntropyBonus, FlowBalance, Reinforce
from gimbal.policies.categorical import Categorical
from gimbal.policies.control import Steps, StepSampling
from gimbal.recipes.papers.exploration.daert import PROGRAM
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import AbstractRun, Run, UpdateRun

RECORD = Path(__file__).with_suffix(".json")
BONUS = {"reward": 0.0, "entropy .1": 0.1, "entropy .3": 0.3}
TUNED = campaign.Tuned(("chance", "best", *BONUS, "flow"), (1e-3, 3e-3, 1e-2, 3e-2, 1e-1), (0, 1, 2, 3, 4), "triggers")
COMPARED = {
    "more than by reward alone": ("chance", "reward"),
    "the mean instead of the best": ("chance", "best"),
    "more than by a bonus of .1": ("chance", "entropy .1"),
    "more than by a bonus of .3": ("chance", "entropy .3"),
    "more than a flow": ("chance", "flow"),
}
STEPS, QUERIES, LATE = 50, 40, 400

Job = tuple[str, float, int]  # arm, learning rate, seed


def run_of(arm: str, rate: float, seed: int) -> AbstractRun:
    tasks = Gymnasium(environment=f"{PROGRAM}@plant={seed}", seed=1)
    if arm in ("chance", "best"):
        run = recipes.load("daert")
        assert isinstance(run, UpdateRun) and isinstance(run.update, DQN)
        update = replace(run.update, optimization=replace(run.update.optimization, learning_rate=rate))
        update = update if arm == "chance" else replace(update, chance=0.0)
        return replace(run, tasks=tasks, held_out=None, update=update, seed=seed)
    run = recipes.load("gflownet")
    assert isinstance(run, Run)
    bonus = BONUS.get(arm, 0.0)
    return replace(
        run,
        policy=Categorical(observations=32, actions=8),
        engine=Episodes(slots=QUERIES),
        tasks=tasks,
        held_out=None,
        sampling=StepSampling(max_length=4),
        prompts_per_step=5,
        num_generations=8,
        store=Once(),
        max_staleness=0,
        objective=FlowBalance(beta=0.2) if arm == "flow" else Reinforce(),
        regularisers=(EntropyBonus(coef=bonus),) if bonus else (),
        optimization=replace(run.optimization, learning_rate=rate),
        seed=seed,
    )


def measure(job: Job) -> dict[str, Any]:
    torch.set_num_threads(1)
    arm, rate, seed = job
    start, trainer, said = time.process_time(), Trainer(run_of(*job)), []
    trainer.begin()
    for _ in range(STEPS):
        _, groups, *_ = trainer.advance()
        for episode in (episode for group in groups for episode in group.episodes):
            steps = episode.rows[0].decisions
            assert isinstance(steps, Steps), type(steps)
            said.append(steps.action_NSA[0, :, 0].tolist())
    trainer.close()
    assert len(said) == STEPS * QUERIES, len(said)
    command_KS = np.array(said)
    hit_KB = triggered(command_KS, seed)
    found = {
        "triggers": len(np.unique(command_KS[hit_KB.any(1)], axis=0)),
        "hits": int(hit_KB[-LATE:].any(1).sum()),
        "bugs": int((hit_KB.sum(0) >= 10).sum()),
    }
    return {"arm": arm, "rate": rate, "seed": seed, **found, "cpu": round(time.process_time() - start, 1)}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
