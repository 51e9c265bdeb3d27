"""What each part of the closed loop is for, and which faults it holds: ablations on a hard corner, faults on stale data.

**Setting.** That of grid.py: ``gimbal-tiny``, 24 steps of 64 rollouts, held-out pass@1 in the sampler on 256 tasks, 2 samples.

**Ablations.** spell_backward at age 16, an int4 sampler, groups of 2, from 1e-3: the corner of the grid with the least room. Of the
recipe ``stable`` one part is taken out: *take-back* (``region.times=inf``), *rate* (``up=down=1``: the rate stays where it was typed),
*discrepancy* (``region.discrepancy=inf``: the distance of the data does not matter), *calm* (``region.calm=0``: nor how certain the
policy is), *correction* (``correction=None``). *fallback* is added instead (``Fallback()``). Seeds 0 to 4.

**Levers.** The same corner; the loop as it is, and another lever set by hand: one or eight updates a batch for four, a clip at 0.1 or
0.4 for 0.2, a weight that counts up to 2 for 5, an entropy bonus of 0.003, groups of 8 for 2. Seeds 0 to 2. What no setting of a
lever improves, no controller of that lever will.

**Faults.** chain_sum at age 4, a float32 sampler, groups of 8, from 1e-4: a fifth of the verdicts turned around (*reward*), noise of
0.5 nats on the recorded log-probabilities (*logprob*), every tenth weight sync lost (*sync*), a learning rate ten times as high
from step 20 of 32 on (*tenfold*). Seeds 0 to 4 with the loop; seeds 0 and 1 without it (*decoupled* of grid.py), to see that the
fault is one.

**Rule.** A part is in the recipe if without it a run collapses (ends below what the first policy scores), or the mean over seeds is
lower than that of the whole by more than 0.02. What is not in the recipe comes in by the same rule. A lever
deserves a controller if a setting of it is above the whole by more than 0.02 in the mean, and in each seed. A fault is held if no
run collapses.

**Constant.** Added when all levers had been seen: of seven, *clip 0.1* alone is above the whole in each of three seeds, which chance
alone does to one of seven in .44 of cases (computed afterwards; "more often than not" had stood here). So it is tried as a constant,
not as a controller, where it was not chosen: in every fourth cell of the hypercube of grid.py, seeds 3 and 4, with and without. It
comes into the recipe if the mean difference over the ten cells is above 0 with its interval (t, 95 %) and no run collapses.

Written before the first run of it, and the constant before the first of those.

    python claims/holds.py       # goes on from claims/holds.json; an hour of one idle core
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import campaign
import grid
from grid import Cell, Job

from gimbal.controllers import AbstractController, Fallback, Stability
from gimbal.controllers.base import State
from gimbal.objectives import ClippedRatio, EntropyBonus, MaskedWeight
from gimbal.runtime.faults import Faults
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
CORNER = Cell("spell_backward", 16, "int4", 2, 1e-3)
STALE = Cell("chain_sum", 4, "float32", 8, 1e-4)
CONSTANT = "clip 0.1"


@dataclass(frozen=True, kw_only=True)
class Tenfold(AbstractController):
    """The learning rate, ten times as high from learner step ``begin`` on."""

    rate: float
    begin: int = 20

    def init(self) -> State:
        return {"value": self.rate, "steps": 0.0}

    def update(self, state: State, signals: Mapping[str, float]) -> State:
        steps = state["steps"] + 1
        return {"value": self.rate * (10 if steps >= self.begin else 1), "steps": steps}


def loop(change: Callable[[Stability], Stability]) -> Callable[[Run], Run]:
    def changed(run: Run) -> Run:
        assert run.stability is not None, "the recipe has the loop"
        return replace(run, stability=change(run.stability))

    return changed


def region(**bounds: float) -> Callable[[Run], Run]:
    return loop(lambda rule: replace(rule, region=replace(rule.region, **bounds)))


def tenfold(run: Run) -> Run:
    rule = Tenfold(rate=run.optimization.learning_rate)
    return replace(run, steps=32, controllers={"optimization.learning_rate": rule})


WITHOUT: Mapping[str, Callable[[Run], Run]] = {
    "": lambda run: run,
    "take-back": region(times=math.inf),
    "rate": loop(lambda rule: replace(rule, up=1.0, down=1.0)),
    "discrepancy": region(discrepancy=math.inf),
    "calm": region(calm=0.0),
    "correction": lambda run: replace(run, correction=None),
    "fallback": loop(lambda rule: replace(rule, fallback=Fallback())),
}
LEVERS: Mapping[str, Callable[[Run], Run]] = {
    "1 update": lambda run: replace(run, optimization=replace(run.optimization, minibatches=1)),
    "8 updates": lambda run: replace(run, optimization=replace(run.optimization, minibatches=8)),
    "clip 0.1": lambda run: replace(run, objective=ClippedRatio(clip_low=0.1, clip_high=0.1)),
    "clip 0.4": lambda run: replace(run, objective=ClippedRatio(clip_low=0.4, clip_high=0.4)),
    "weight up to 2": lambda run: replace(run, correction=MaskedWeight(low=0.0, high=2.0)),
    "entropy bonus": lambda run: replace(run, regularisers=(EntropyBonus(coef=0.003),)),
    "groups of 8": lambda run: replace(run, prompts_per_step=8, num_generations=8),
}
FAULTS: Mapping[str, Callable[[Run], Run]] = {
    "none": lambda run: run,
    "reward": lambda run: replace(run, faults=Faults(reward_flip=0.2)),
    "logprob": lambda run: replace(run, faults=Faults(logprob_noise=0.5, unproved=True)),
    "sync": lambda run: replace(run, faults=Faults(lost_syncs=0.1, unproved=True)),
    "tenfold": tenfold,
}


@dataclass(frozen=True)
class Trial:
    change: str
    job: Job

    @property
    def run(self) -> Run:
        changes = FAULTS if self.job.cell == STALE else {**WITHOUT, **LEVERS}
        return changes[self.change](grid.run_of(self.job))


def trials() -> list[Trial]:
    found = [Trial(change, Job("loop", CORNER, seed)) for seed in range(5) for change in WITHOUT]
    for arm, seeds in (("loop", range(5)), ("decoupled", range(2))):
        for seed in seeds:
            found += [
                Trial(change, Job(arm, STALE, seed, 32 if change == "tenfold" else grid.STEPS)) for change in FAULTS
            ]
    found += [Trial(change, Job("loop", CORNER, seed)) for seed in range(3) for change in LEVERS]
    return found + [Trial(change, job) for job in elsewhere() for change in ("", CONSTANT)]


def elsewhere() -> list[Job]:
    """Where the constant is tried."""
    return [Job("loop", cell, seed) for cell in grid.hypercube()[::4] for seed in (3, 4)]


def measure(trial: Trial) -> dict[str, Any]:
    return {"change": trial.change, **grid.measured(trial.job, trial.run)}


def of(runs: Sequence[Mapping[str, Any]], arm: str, cell: Cell, change: str) -> list[float]:
    """The scores of the seeds that are recorded."""
    wanted = {"arm": arm, "cell": cell._asdict(), "change": change}
    here = [run for run in runs if all(run[name] == value for name, value in wanted.items())]
    return [run["score"] for run in sorted(here, key=lambda run: run["seed"])]


def left(runs: Sequence[Mapping[str, Any]]) -> list[Trial]:
    done = {(run["change"], run["arm"], Cell(**run["cell"]), run["seed"]) for run in runs}
    return [t for t in trials() if (t.change, t.job.arm, t.job.cell, t.job.seed) not in done]


def told(found: Mapping[str, Any]) -> str:
    return f"{found['arm']} {found['change']} {found['seed']} {found['score']:.3f}"


def main() -> None:
    campaign.campaign(__doc__, RECORD, lambda runs: [left(runs)], measure, told)


if __name__ == "__main__":
    main()
