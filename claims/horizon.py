"""Does a limit on turns that rises in stages beat a fixed one (ScalingInter of AgentGym-RL, arXiv:2509.08755)?

**Setting.** The recipe ``terminal`` with tasks that need 2, 3 or 4 turns, a third of each. A question is on the numbers in the last of
one, two or three files, each of which names the next; a file is put into the sandbox only after the turn before. So no program can
read two of them, and n files take n programs and an answer (a test plays the solutions). The model was trained on two files. Steps
of 8 tasks x 8 rollouts; a run stops after the step in which 30,000 tokens are generated. An episode that wants another turn at the
limit is truncated, and earns 0.

**Arms.** *short*: at most 2 turns in training. *long*: at most 6. *staged*: 2, then 4 after four learner steps, then 6 after eight
(published: 10, 20 and 30 turns, 100 steps each). Evaluation has 6 turns in all arms.

**Figures.** *after*: success on 72 held-out tasks, 24 of each number of turns, 2 samples each, after training; *mean*: the mean pass
rate of the training steps, which counts episodes under the arm's own limit; *cut*: the share of training episodes that the limit
truncated (``tool/cut_frac``); *tokens* and *steps*; *turns_n*: success on the tasks that need n turns.

**Rule.** Each arm at the better of 5e-5 (the recipe's) and 1.5e-4 by *after* of one run of seed 100, then seeds 0 to 4. *staged* is
above another arm if the interval of the difference of *after*, over all 25 pairs of seeds (exact, 96.8 %: the third from either end),
lies above 0; the other way round it is below. An interval with 0 in it decides nothing. The limit acts if *cut* of *short* is above
that of *long* in every seed.

**Limits.** One small model, short horizons, about a dozen steps, on-policy; the published stages are ten times as long. A rate is
chosen by a single run of two.

Written before its runs. A former form of this claim was taken out after two runs: a limit cut episodes one turn too early
(docs/log.md), so no answer in the last turn could earn anything. It had three rates, 40,000 tokens and 4 samples; less is for the
sake of time.

    python claims/horizon.py       # goes on from claims/horizon.json; eight minutes of one idle core
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
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
TUNED = campaign.Tuned(tuple(STAGES), (5e-5, 1.5e-4), (0, 1, 2, 3, 4), "after")
COMPARED: Mapping[str, tuple[str, str]] = {
    "rising against short": ("staged", "short"),
    "rising against long": ("staged", "long"),
    "the other way round, short": ("short", "staged"),
    "the other way round, long": ("long", "staged"),
}
EVERY, TOKENS, EACH, SAMPLES, FILES = 4, 30_000, 24, 2, (1, 2, 3)
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
        held_out=HeldOut(tasks=Hops(seed=1, size=EACH), samples=SAMPLES),
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
        "mean": terminal.mean(steps, "pass_rate"),
        "cut": terminal.mean(steps, "tool/cut_frac"),
        "tokens": int(steps[-1]["tokens"]),
        "steps": len(steps),
        "limit": [int(step["curriculum/Horizon/turns"]) for step in steps],
        "calls": [round(step["tool/calls"], 2) for step in steps],
        "cuts": [round(step["tool/cut_frac"], 3) for step in steps],
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


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
