"""Whether the bound on age is worth a controller: a bound that follows what age costs, against bounds that stay.

**Setting.** That of grid.py with the recipe ``stable``: ``gimbal-tiny``, 24 steps of 64 rollouts, held-out pass@1 in the sampler on
256 tasks, 2 samples. An int8 sampler, groups of 8, from 1e-4, ``ahead="full"``: samplers that are always as far ahead as the bound
allows. Seeds 0 to 4.

**Arms.** *moving*: ``max_staleness`` is 16, and no more than (bound + 1) batches are outstanding. The share of the learning rate that
the discrepancy takes is sqrt(discrepancy / (c region.discrepancy)), see docs/stability.md. The bound begins at 1. Once it has stood
for as many steps as it is large (at least 2), so that its own data has been seen, it doubles if the share was below a quarter in the
last two steps, and halves, to 1 at least, if it was above a half. *1*, *4* and *16* stay: of both task sets they are the runs of the
loop in grid.json (all rates, samplers and groups, between which its fit finds no difference), and of spell_backward *16* is also run
here, on the same seeds. *moving below 4*: ``max_staleness`` is 4, a bound that costs nothing on spell_backward in grid.json.

**Time.** Steps at different bounds take different times, and which depends on the machine. Two are simulated (``gimbal plan``,
partial rollouts; 4 samplers of 64 slots, 16 x 8 rollouts a step, log-normal lengths): *learner*, which takes ten times as long to
train on tokens as the samplers to draw them, and *samplers*, where it takes 0.3 times as long. A step at bound b takes
1 / (steps a second of ``simulate`` at b).

**Rule.** The figure is the first time at which the mean of three steps' training pass rate is at least 0.8 (the median over runs, one
that never is counts as infinite), on each task set and each machine. An arm's regret there is that time over the best arm's, less 1.
*moving* deserves a place in the loop if (1) its largest regret is below that of each bound that stays; (2) on spell_backward its
held-out score is above that of *16* by more than 0.02 in the mean of the five seeds, with its 95 % interval (paired, t) above 0; and
(3) the mean of *moving below 4* is not more than 0.02 below that of *4*. Otherwise it is left out.

Written before the first run of it; one pilot on seed 100 had gone before, with steps of one instead of doubling. After two runs of
*moving*, *1* and *4* (and *16* on chain_sum) were taken from grid.json instead of being run again: the machine was too busy. When all
had been seen, two things were added, which the tables below have beside the rule's: *moving, as it is* has the steps of an admission
under ``max_staleness`` 16, since its long rollouts have 16 versions to finish, which the rule's time leaves out; and *4 of 16* is
``max_staleness=16 staleness.admission=4``, a bound that stays too, with the curves of *4*.

    python claims/age.py       # goes on from claims/age.json; five minutes of one idle core
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import campaign
import grid
from grid import Cell, Job

from gimbal.dataflow.staleness import Pace
from gimbal.runtime.local import Trainer
from gimbal.runtime.simulate.simulator import Setup, simulate
from gimbal.runtime.simulate.timing import LogNormal, Speeds

RECORD = Path(__file__).with_suffix(".json")
TASKS, SEEDS, MOVING, SAME = ("spell_backward", "chain_sum"), range(5), "moving", "same"
MACHINES: Mapping[str, float] = {"learner": 10.0, "samplers": 0.3}  # seconds of training for each second of drawing
DRAWN = 9700.0  # tokens a second of four samplers with all slots taken
# Of a step at each bound, and of one at each admission where ``max_staleness`` is 16: ``simulated``. A test repeats some.
SECONDS: Mapping[str, Mapping[int, float]] = {
    "learner": {1: 312.944, 2: 278.570, 4: 275.925, 8: 275.925, 16: 275.925},
    "samplers": {1: 146.405, 2: 112.494, 4: 72.338, 8: 50.449, 16: 38.667},
}
ADMITTED: Mapping[str, Mapping[int, float]] = {
    "learner": {1: 283.358, 2: 275.925, 4: 275.925, 8: 275.925, 16: 275.925},
    "samplers": {1: 68.244, 2: 44.823, 4: 34.414, 8: 33.785, 16: 38.667},
}


@dataclass(frozen=True)
class Trial:
    arm: str
    tasks: str
    most: int
    seed: int


@dataclass
class Bound:
    """The rule of *moving*."""

    most: int
    bound: int = 1
    since: int = 0  # steps that it has stood for
    before: float = math.nan  # what the discrepancy took in the step before

    def update(self, taken: float) -> None:
        self.since += 1
        if self.since >= max(2, self.bound):
            if max(taken, self.before) < 0.25 and self.bound < self.most:
                self.bound, self.since = min(2 * self.bound, self.most), 0
            elif min(taken, self.before) > 0.5 and self.bound > 1:
                self.bound, self.since = self.bound // 2, 0
        self.before = taken


def trials() -> list[Trial]:
    found = [Trial(MOVING, tasks, 16, seed) for seed in SEEDS for tasks in TASKS]
    found += [Trial(SAME, TASKS[0], 16, seed) for seed in SEEDS]
    return found + [Trial(MOVING, TASKS[0], 4, seed) for seed in SEEDS]


def measure(trial: Trial) -> dict[str, Any]:
    job = Job("loop", Cell(trial.tasks, trial.most, "int8", 8, 1e-4), trial.seed)
    trainer = Trainer(grid.run_of(job))
    trainer.begin()
    rule, rows = Bound(trial.most), []
    for _ in range(job.steps):
        if trial.arm == MOVING:
            staleness = Pace(admission=rule.bound).start(trial.most, trainer.run.prompts_per_step)
            trainer.pipeline.staleness = staleness
        metrics, _, _ = trainer.advance()
        loop = trainer.learner.loop
        room = loop.rule.region.discrepancy * min(1.0, loop.state["surprise"] / loop.rule.region.calm)
        taken = math.sqrt(max(metrics["loop/discrepancy"], 0.0) / room)
        bound = rule.bound if trial.arm == MOVING else trial.most
        rows.append([round(metrics["pass_rate"], 3), bound, int(metrics["staleness/max"]), round(taken, 3)])
        rule.update(taken)
    found = {
        "arm": trial.arm,
        "tasks": trial.tasks,
        "most": trial.most,
        "seed": trial.seed,
        "score": grid.held_out(trainer, 256, 2),
        "dropped": sum(trainer.pipeline.drops.values()),
        "steps": rows,
    }
    trainer.close()
    return found


def simulated(machine: str, most: int, admission: int | None = None) -> float:
    speeds = Speeds(step_s=0.02, row_s=1e-4, load_s=1.0, train_token_s=MACHINES[machine] / DRAWN)
    lengths = LogNormal(mean=2000.0, cv=1.0, limit=32768)
    plan = Setup(speeds=speeds, lengths=lengths, samplers=4, slots=64, warmup=24, steps=60)
    return simulate(replace(plan, max_staleness=most, admission=admission), "partial-rollout").step_s


def left(runs: Sequence[Mapping[str, Any]]) -> list[Trial]:
    done = {(run["arm"], run["tasks"], run["most"], run["seed"]) for run in runs}
    return [t for t in trials() if (t.arm, t.tasks, t.most, t.seed) not in done]


def told(found: Mapping[str, Any]) -> str:
    bounds = [row[1] for row in found["steps"]]
    return f"{found['arm']} {found['tasks']} {found['most']} {found['seed']} {found['score']:.3f} {bounds}"


def main() -> None:
    campaign.campaign(__doc__, RECORD, lambda runs: [left(runs)], measure, told)


if __name__ == "__main__":
    main()
