"""What one fixed worst case at a time is worth where masses and lengths are not known: IWOCS with networks (arXiv:2410.06212).

**Setting.** Pendulum-v1 with five torques (-2 to 2) in place of a real one; nine pendulums, of mass .5, 1 and 2 and length .6, 1 and
1.5. DQN with networks of 64 x 64, 50,000 steps of training an arm. Arms: *worst cases*, at most five pendulums for 10,000 steps each,
one after the other, the first of mass 1 and length 1 and each next one that in which the policy so far earns least (mean of five
episodes, by its mode), until that is none worse than the worst of those before; its policy is argmax_a min_j Q_j(o, a) of all
networks; *alone*, that without the minimum: of the same networks the one whose own policy earns most in its worst pendulum, by the same
episodes; *randomized*, one network whose episodes go through all nine; *nominal*, one network in the pendulum of mass 1 and length 1.
Figure: the mean return of ten fresh episodes by the policy's mode in the pendulum where that is least; beside it that over all nine.

**Rates.** Each arm at the best of 3e-4, 1e-3 and 3e-3, by one run of seed 100.

**Rule.** Seeds 0 to 4. An arm is above another if the interval of the difference of their figures, over all 25 pairs of seeds (exact,
96.8 %: the third from either end), lies above 0. *Worst cases beat the nominal one*, *worst cases beat randomizing* and *the minimum
matters* if *worst cases* is above *nominal*, *randomized* and *alone*.

**Limits.** One task and one family of nine, all of which are searched exhaustively: 45 episodes before each pendulum, 36,000 steps in
all, which count for no arm. *Worst cases* stopped after three pendulums, so at 30,000 steps, and each of its networks has 10,000,
where *nominal* and *randomized* have one of 50,000: that its budget is smaller explains its place as well as the minimum does, but
for *alone*, which has the same networks (said after the runs). The paper's guard, which trusts a network only near its own data, is
not built, and its actors with real actions are not used here. *Worst cases* plays up to five networks, the others one of the same
size.

Written before its runs, after a pilot of seed 100 at 1e-3 and 36,000 steps an arm: -1006 in the worst pendulum (-344 in the mean) with
three worst cases, -860 (-352) randomized, -1003 (-474) nominal.

    python claims/families.py       # goes on from claims/families.json; about half an hour of one core
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import campaign
import gymnasium
import numpy as np

from gimbal import recipes
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.learning.robust import Rounds, WorstCases
from gimbal.learning.updates.dqn import DQN
from gimbal.learning.updates.off_policy import Explore
from gimbal.policies.greedy import Greedy
from gimbal.policies.least import LeastValues
from gimbal.runtime.evaluate import EvalResult, evaluate_held_out
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import HeldOut, UpdateRun

RECORD = Path(__file__).with_suffix(".json")
ARMS = ("worst cases", "alone", "randomized", "nominal")
TUNED = campaign.Tuned(ARMS, (3e-4, 1e-3, 3e-3), (0, 1, 2, 3, 4), "worst")
COMPARED = {
    "worst cases beat the nominal one": ("worst cases", "nominal"),
    "worst cases beat randomizing": ("worst cases", "randomized"),
    "the minimum matters": ("worst cases", "alone"),
}
STEPS, ROUNDS = 50_000, 5
PENDULUM = "families:Torques"  # by its module: seeds hang on the name, and must not on a directory
GRID = {"m": (0.5, 1.0, 2.0), "l": (0.6, 1.0, 1.5)}
FAMILY = Gymnasium(environment=PENDULUM, grid=GRID, size=9).family
NOMINAL = FAMILY.index(f"{PENDULUM}@m=1,l=1")
SEARCHED, TESTED = (
    Gymnasium(environment=PENDULUM, grid=GRID, seed=seed, size=size) for seed, size in ((3, 45), (7, 90))
)

PLACE = tempfile.TemporaryDirectory()  # of the networks, while they are needed

Job = tuple[str, float, int]  # arm, learning rate, seed


class Torques(gymnasium.ActionWrapper):
    """Pendulum-v1 with a choice of five torques."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("Pendulum-v1"))
        self.action_space = gymnasium.spaces.Discrete(5)

    def action(self, action: Any) -> np.ndarray:
        return np.array([action - 2.0], np.float32)


def run_of(tasks: Gymnasium, rate: float, seed: int) -> UpdateRun:
    run = recipes.load("dqn")
    assert isinstance(run, UpdateRun) and isinstance(run.store, Transitions) and isinstance(run.update, DQN)
    return replace(
        run,
        policy=Greedy(observations=3, actions=5, hidden=(64, 64), scale=50.0),
        tasks=tasks,
        held_out=HeldOut(tasks=TESTED, samples=1, engine=Episodes(slots=90)),
        store=replace(run.store, n=1, learning_starts=500, update_to_data=0.5),
        update=replace(
            run.update,
            explore=Explore(first=1.0, last=0.1, over=4_000),
            optimization=replace(run.update.optimization, learning_rate=rate, decay="constant"),
        ),
        seed=seed,
        threads=1,
    )


def tasks_of(model: int) -> Gymnasium:
    return Gymnasium(environment=FAMILY[model], seed=1)


def trained(run: UpdateRun, steps: int, directory: Path) -> Path:
    trainer = Trainer(run)
    trainer.begin()
    campaign.interacted(trainer, steps)
    trainer.learner.save(directory)
    trainer.close()
    return directory


def played(run: UpdateRun, models: Sequence[Path], tasks: Gymnasium) -> EvalResult:
    """Of the policy by the least value of these networks."""
    spec = LeastValues(beside=tuple(map(str, models)))
    held_out = HeldOut(tasks=tasks, samples=1, engine=Episodes(slots=90))
    return evaluate_held_out(replace(run, policy=spec, held_out=held_out), spec.load())


@cache
def solved(rate: float, seed: int) -> Rounds[Path]:
    """The networks of the worst cases, which *worst cases* and *alone* share at the same rate."""
    place, one = Path(PLACE.name) / f"{rate}-{seed}", run_of(tasks_of(NOMINAL), rate, seed)

    def solve(model: int) -> Path:
        return trained(run_of(tasks_of(model), rate, seed), STEPS // ROUNDS, place / str(model))

    def returns(models: Sequence[Path], model: int) -> float:
        return played(one, models, Gymnasium(environment=FAMILY[model], seed=SEARCHED.seed, size=5)).greedy_score

    return WorstCases(most=ROUNDS)(range(len(FAMILY)), solve, returns, first=NOMINAL)


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    start = time.process_time()
    found: dict[str, Any] = {"arm": arm, "rate": rate, "seed": seed}
    one = run_of(tasks_of(NOMINAL), rate, seed)
    if arm in ("nominal", "randomized"):
        whole = one if arm == "nominal" else replace(one, tasks=Gymnasium(environment=PENDULUM, grid=GRID, seed=1))
        models = [trained(whole, STEPS, Path(PLACE.name) / f"{arm}-{rate}-{seed}")]
    else:
        rounds = solved(rate, seed)
        models = list(rounds.solutions)
        found |= {"models": [FAMILY[model].partition("@")[2] for model in rounds.models]}
        found |= {"least": [round(value) for value in rounds.least]}
    if arm == "alone":
        models = [max(models, key=lambda model: played(one, [model], SEARCHED).worst["greedy_score"])]
    after = played(one, models, TESTED)
    found |= {"worst": round(after.worst["greedy_score"], 1), "mean": round(after.greedy_score, 1)}
    return {**found, "cpu": round(time.process_time() - start, 1)}


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
