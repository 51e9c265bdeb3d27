"""Does a limit on turns that rises in stages beat a fixed one (ScalingInter of AgentGym-RL, arXiv:2509.08755)?

**Setting.** The recipe ``terminal`` with tasks that need 2, 3 or 4 turns, a third of each. A question is on the numbers in the last of
one, two or three files, each of which names the next; a file is put into the sandbox only after the turn before. So no program can
read two of them, and n files take n programs and an answer (a test plays the solutions). The model was trained on two files. Steps
of 8 tasks x 8 rollouts; a run stops after the step in which 40,000 tokens are generated. An episode that wants another turn at the
limit is truncated, and earns 0.

**Arms.** *short*: at most 2 turns in training. *long*: at most 6. *staged*: 2, then 4 after four learner steps, then 6 after eight
(published: 10, 20 and 30 turns, 100 steps each). Evaluation has 6 turns in all arms.

**Rates.** Each arm at the best of 3e-5, 1e-4 and 3e-4 by one run of seed 100.

**Rule.** Seeds 0 to 4. Success is the mean over 72 held-out tasks, 24 of each number of turns, with 4 samples each, after training.
*staged* is better (worse) than another arm if the 95 % interval of the mean paired difference over seeds (t, 4 degrees of freedom)
is above (below) 0. An interval with 0 in it decides nothing. A run has *collapsed* if the mean pass rate of its last three steps is
below half of the best mean of three steps in a row. That the limit acts is shown by the share of truncated rollouts.

**Limits.** One small model, short horizons, about a dozen steps, on-policy; the published stages are ten times as long.

Written before its runs. A pilot (seed 100, 6 turns, 1e-4, 30 steps) went from 0.15 to 0.28, and showed what a step costs.

    python claims/horizon.py       # goes on from claims/horizon.json; about ten minutes of one idle core
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import campaign
import terminal
import torch

from gimbal.dataflow.curricula.horizon import Horizon
from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, AbstractTasks, Moment
from gimbal.environments.chore_kinds import FOLLOWED
from gimbal.environments.terminal import Terminal, TerminalSession
from gimbal.policies.token import Sampling
from gimbal.recipes import function
from gimbal.records import Task
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import HeldOut, Run

RECORD = Path(__file__).with_suffix(".json")
STAGES: Mapping[str, tuple[int, ...]] = {"short": (2,), "long": (6,), "staged": (2, 4, 6)}
EVERY, TOKENS, EACH, FILES = 4, 40_000, 24, (1, 2, 3)
RATES, TUNING, SEEDS = (3e-5, 1e-4, 3e-4), 100, range(5)
LETTERS = "bcdfghjklmpqrtvwxz"
ASKED = ("follow_total", "follow_largest", "follow_last")

Job = tuple[str, float, int]  # arm, learning rate, seed


@dataclass(frozen=True, kw_only=True)
class Hops(AbstractTasks):
    """Questions on the numbers of the last of some files, each of which names the next: ``files`` of them need files + 1 turns."""

    seed: int
    size: int
    files: tuple[int, ...] = FILES

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self.size:
            raise IndexError(f"task {index} of {self.size}")
        rng = Random(f"hops:{self.seed}:{index}")
        count = self.files[index % len(self.files)]
        what, program, of = FOLLOWED[rng.choice(ASKED)]
        names = rng.sample([a + b for a in LETTERS for b in LETTERS], count)
        numbers = [rng.randint(1, 99) for _ in range(rng.randint(3, 12))]
        texts = [*names[1:], " ".join(map(str, numbers))]
        prompt = f"What is {what} in the file that {names[0]} names?"
        columns = {
            "messages": [{"role": "user", "content": prompt}],
            "files": {names[0]: texts[0]},
            "later": [[name, text] for name, text in zip(names[1:], texts[1:], strict=True)],
            "programs": [*(f"print(open('{name}').read())" for name in names[:-1]), program.format(names[-1])],
        }
        return Task(id=f"hops:{self.seed}:{index}", answer=str(of(numbers)), source="hops", columns=columns)


@dataclass(frozen=True, kw_only=True)
class Arriving(AbstractEnvironmentSpec):
    """A terminal into which one more file of the task's column ``later`` is put after each turn."""

    terminal: Terminal = Terminal(most=24)

    @property
    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        return self.terminal.schemas

    def open(self) -> ArrivingSession:
        return ArrivingSession(self.terminal.open())


class ArrivingSession(AbstractEnvironment):
    def __init__(self, session: TerminalSession) -> None:
        self.session = session
        self.later: list[tuple[str, str]] = []

    def reset(self, task: Task, seed: int) -> None:
        self.session.reset(task, seed)
        self.later = list(task.columns["later"])

    def step(self, action: str) -> Moment:
        moment = self.session.step(action)
        if not moment.ended and self.later:
            name, text = self.later.pop(0)
            self.session.opened.write(name, text.encode())
        return moment

    def close(self) -> None:
        self.session.close()


def run_of(arm: str, rate: float, seed: int) -> Run:
    run = function("terminal")()
    return replace(
        run,
        seed=seed,
        threads=1,
        tasks=Hops(seed=0, size=600),
        held_out=HeldOut(tasks=Hops(seed=1, size=EACH), samples=4),
        curriculum=Horizon(turns=STAGES[arm], every=EVERY),
        workflow=replace(run.workflow, tool=Arriving(), answers=STAGES["long"][0] - 1),
        sampling=Sampling(max_length=320),
        optimization=replace(run.optimization, learning_rate=rate),
    )


def measure(job: Job) -> dict[str, Any]:
    arm, rate, seed = job
    torch.set_flush_denormal(True)
    run = run_of(arm, rate, seed)
    trainer = Trainer(run)
    trainer.begin()
    cpu, steps = time.process_time(), list[Mapping[str, float]]()
    while not steps or steps[-1]["tokens"] < TOKENS:
        steps.append(trainer.advance()[0])
    cpu = time.process_time() - cpu
    needed = {f"turns_{count + 1}": success(run, trainer, count) for count in FILES}
    found = {
        "arm": arm,
        "rate": rate,
        "seed": seed,
        "after": round(sum(needed.values()) / len(needed), 4),
        **needed,
        "tokens": int(steps[-1]["tokens"]),
        "steps": len(steps),
        "collapsed": collapsed([step["pass_rate"] for step in steps]),
        "limit": [int(step["curriculum/Horizon/turns"]) for step in steps],
        "calls": [round(step["tool/calls"], 2) for step in steps],
        "truncated": [round(step["length/truncated_frac"], 3) for step in steps],
        "pass_rate": [round(step["pass_rate"], 3) for step in steps],
        "cpu": round(cpu, 1),
        "load": round(os.getloadavg()[1], 1),
    }
    trainer.close()
    return found


def success(run: Run, trainer: Trainer, files: int) -> float:
    """On the held-out tasks of so many files."""
    assert run.held_out is not None
    tasks = Hops(seed=files, size=EACH, files=(files,))
    return terminal.success(replace(run, held_out=replace(run.held_out, tasks=tasks)), trainer)


def collapsed(pass_rate: list[float]) -> bool:
    means = [sum(pass_rate[at : at + 3]) / 3 for at in range(len(pass_rate) - 2)]
    return bool(means) and means[-1] < max(means) / 2


def best(runs: campaign.Runs, arm: str) -> float | None:
    """The rate at which an arm is compared, once its runs of the tuning seed are all there."""
    tuned = [run for run in runs if run["seed"] == TUNING and run["arm"] == arm]
    return max(tuned, key=lambda run: run["after"])["rate"] if len(tuned) == len(RATES) else None


def left(runs: campaign.Runs) -> Iterator[Iterable[Job]]:
    done = {(run["arm"], run["rate"], run["seed"]) for run in runs}
    yield [job for rate in RATES for arm in STAGES if (job := (arm, rate, TUNING)) not in done]
    chosen = {arm: rate for arm in STAGES if (rate := best(runs, arm)) is not None}
    for seed in SEEDS:
        yield [job for arm, rate in chosen.items() if (job := (arm, rate, seed)) not in done]


def told(found: Mapping[str, Any]) -> str:
    return " ".join(f"{name} {value}" for name, value in found.items() if not isinstance(value, list))


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, told)
