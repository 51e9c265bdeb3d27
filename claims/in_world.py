"""SAC that acts in a learned world alone, beside the same recorded steps learned from offline.

**Setting.** Pendulum-v1; the data are the first 25 episodes (5,000 steps) of `gimbal/pendulum/random-v0`, of random actions.
Arms: *world*, the recipe `world` for 5,000 moves (five networks of 64 x 64), then the recipe `sac` for 5,000 steps in it, which
begin at recorded steps and are cut off after 50; nothing acts in the environment itself. *iql* and *td3_bc*, the recipes, and
*td3*, `td3_bc` without imitation, on the same steps for 5,000 moves by minibatches of 128, which is what *world* moves its
policy. Networks of 64 x 64. Figure: the mean return of 20 held-out episodes in the environment itself, by the last policy's mode.
Recorded besides: what the world promises, the mean return a step of the last 1,000 imagined ones, and what the policy earns a
step in truth.

**Rates.** Each arm at the better of 1e-3 and 3e-3, one for policy and critics, by one run of seed 100. The world has 1e-3.

**Rule.** Seeds 0 to 4. *The world is above* an arm if the interval of the difference of their figures, over all 25 pairs of seeds
(exact, 96.8 %: the third from either end), lies above 0, and below it if it lies below.

**Limits.** One task of three numbers whose steps have no noise and no end, and one data set, of random actions, which reach most
states: the best case for a world, and a poor one for imitation. The horizon is not tuned; longer and shorter ones, and branches
in place of whole episodes (`mbpo`, `ogsrl`), are no arms. *world* has twice the moves, half of them its world's.

Written before its runs, after pilots of seed 100 at 1e-3: *world* -157, *td3* -251, *td3_bc* -1,022, *iql* -1,121.

Seen after the runs: what the world gains over the two that imitate, TD3 without imitation gains too, from the same steps in a quarter
of the time. So it is no more than being free of the data's actions, which are random. All arms chose the larger rate; none was tried
beyond it.

    python claims/in_world.py       # goes on from claims/in_world.json; about ten minutes of one core
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import campaign
import torch

from gimbal import recipes
from gimbal.dataflow.replay.recordings import Recordings
from gimbal.environments.minari import recording
from gimbal.environments.recording import write
from gimbal.policies.dynamics import Dynamics
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import UpdateRun

RECORD = Path(__file__).with_suffix(".json")
ARMS = ("world", "iql", "td3_bc", "td3")
TUNED = campaign.Tuned(ARMS, (1e-3, 3e-3), (0, 1, 2, 3, 4), "return")
COMPARED = {f"the world is above {arm}": ("world", arm) for arm in ARMS[1:]}
DATA, EPISODES, MOVES, STEPS, HORIZON = "gimbal/pendulum/random-v0", 25, 1000, 5, 50

Job = tuple[str, float, int]  # arm, learning rate, seed


def data(where: Path) -> str:
    """The first episodes, written there."""
    whole = recording(DATA)
    write(replace(whole, episodes=whole.episodes[:EPISODES]), where, "few")
    return str(where)


@contextmanager
def begun(run: UpdateRun) -> Iterator[Trainer]:
    trainer = Trainer(run)
    trainer.begin()
    yield trainer
    trainer.close()


def learned(place: Path, tasks: str, seed: int) -> str:
    """A world of these data, saved there."""
    quick = {"policy.planner.candidates": 2}  # nobody plans in it
    run = recipes.load("world", {"tasks.dataset": tasks, "held_out": None, "seed": seed, **quick})
    assert isinstance(run, UpdateRun)
    policy = replace(run.policy, world=Dynamics(observations=3, actions=1))
    store = Recordings(moves=MOVES, minibatch=128)
    with begun(replace(run, policy=policy, store=store, steps=STEPS, threads=1)) as trainer:
        for _ in range(STEPS):
            trainer.advance()
        place.mkdir()
        trainer.learner.policy.save(place)
    return str(place)


def run_of(arm: str, rate: float, seed: int, source: str) -> UpdateRun:
    """``source``: the data, or the world."""
    if arm == "world":
        changes = {"tasks.environment": source, "held_out.tasks.environment": "Pendulum-v1"}
        run = recipes.load("sac", changes)
    else:
        run = recipes.load("iql" if arm == "iql" else "td3_bc", {"tasks.dataset": source, "store.moves": MOVES})
        run = replace(run, steps=STEPS)
    assert isinstance(run, UpdateRun)
    rates = replace(run.update.optimization, learning_rate=rate, critic_learning_rate=rate)
    update = replace(run.update, optimization=rates, **({"imitation": None} if arm == "td3" else {}))
    return replace(run, update=update, seed=seed, threads=1)


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    start = time.process_time()
    with tempfile.TemporaryDirectory() as place, chdir(place):  # episodes are seeded by the names of their environments
        source = data(Path("data"))
        if arm == "world":
            source = f"./{learned(Path('model'), source, seed)}:{source}@horizon={HORIZON}"
        with begun(run_of(arm, rate, seed, source)) as trainer:
            promised = [trainer.advance()[0]["reward/mean"] for _ in range(trainer.run.steps)]
            cpu = time.process_time() - start
            score = trainer.evaluate().metrics()["eval/greedy_score"]
    found = {"arm": arm, "rate": rate, "seed": seed, "return": round(score, 1)}
    if arm == "world":  # of segments of ten steps
        found |= {"promised": round(sum(promised[-100:]) / 1000, 3), "earned": round(score / 200, 3)}
    return found | {"cpu": round(cpu, 1)}


def left(runs: campaign.Runs) -> Iterator[list[Job]]:
    """The two arms that were near to each other in the pilots first: what is recorded early can be compared."""
    for arms in (("world", "td3"), ARMS):
        yield from replace(TUNED, arms=arms).left(runs)


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, campaign.described)
