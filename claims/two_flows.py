"""Two flows at once: proposals from the mean of two cloned flows' velocities, beside either alone (GPC, arXiv:2510.01068).

**Setting.** Pendulum-v1; the data are the first ten episodes of `gimbal/pendulum/medium-v0`. Arms: *first*, one action of a flow that
clones the even five of them (the recipe `idql`, 2,000 moves, `policy.proposals` 1), and *second*, the odd five; *half*, both flows,
each with the weight 1/2 (`policy.beside`, no further training); *both*, one flow that clones all ten in as many moves. Figure: the mean
return of 20 held-out episodes, by the flow's own noise.

**Rates.** Each arm at the best of 1e-3 and 3e-3 by one run of seed 100; of *half* it is the rate at which its parents clone.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their figures, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0. *Mixing helps* if *half* is above both *first* and *second*.

**Limits.** One task, parents of middling data that differ in little else, and no search of the weight: it is fixed.

Written before its runs, after one pilot of other episodes (seed 100, 1e-3; 50 episodes played): -792 at weight 0, -673 at 1/4, -622 at
1/2; and of parents of one good episode each, where every mix was below the first (-1144; -1472 at 1/2; the second has -1497).

    python claims/two_flows.py       # goes on from claims/two_flows.json; about three minutes of one core
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import torch

from gimbal import api, recipes
from gimbal.environments.minari import Minari, recording
from gimbal.environments.recording import write
from gimbal.policies.best_of import BestOf
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
TUNED = campaign.Tuned(("first", "second", "half", "both"), (1e-3, 3e-3), (0, 1, 2, 3, 4), "return")
COMPARED = {
    "mixing helps over one": ("half", "first"),
    "and over the other": ("half", "second"),
    "mixing is above cloning all": ("half", "both"),
}
MOVES, EPISODES = 2000, 10
PARTS = {"first": slice(0, EPISODES, 2), "second": slice(1, EPISODES, 2), "both": slice(0, EPISODES)}

Job = tuple[str, float, int]  # arm, learning rate, seed


def cloned(part: str, rate: float, seed: int, where: Path) -> UpdateRun:
    """Clones its part of the data and saves the policy below; returns the run that plays one action of its flow."""
    whole = recording("gimbal/pendulum/medium-v0")
    write(replace(whole, episodes=whole.episodes[PARTS[part]]), where / part / "data", part)
    run = recipes.load("idql")
    assert isinstance(run, UpdateRun) and isinstance(run.policy, BestOf)
    rates = replace(run.update.optimization, learning_rate=rate, critic_learning_rate=rate)
    run = replace(run, tasks=Minari(dataset=str(where / part / "data")), update=replace(run.update, optimization=rates))
    run = replace(run, seed=seed, threads=1)
    trainer = Trainer(run)
    trainer.begin()
    for _ in range(MOVES // 250):
        trainer.advance()
    trainer.close()
    trainer.learner.policy.save(where / part / "model")
    return replace(run, policy=replace(run.policy, proposals=1).at(where / part / "model"))


def played(arm: str, rate: float, seed: int, where: Path) -> UpdateRun:
    if arm != "half":
        return cloned(arm, rate, seed, where)
    first, second = (cloned(part, rate, seed, where) for part in ("first", "second"))
    return replace(first, policy=replace(first.policy, beside=second.policy.model, share=0.5))


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    start = time.process_time()
    with tempfile.TemporaryDirectory() as place:
        found = api.evaluate(played(*job, Path(place))).metrics()["eval/score"]
    cpu = time.process_time() - start
    return {"arm": arm, "rate": rate, "seed": seed, "return": round(found, 1), "cpu": round(cpu, 1)}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
