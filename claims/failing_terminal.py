"""A terminal of which every fifth episode fails, by five names, beside the recorded runs whose terminal does not.

**Setting.** The recipe ``terminal`` (``claims/terminal.py``): ``gimbal-tiny-agent``, 8 tasks x 8 rollouts a step, Monty. Of each
episode it is drawn (by the seed, the task, and how many episodes of that task were begun before) whether it fails, how, and at
which of its first three turns, or at its last if that comes earlier. Each of five kinds has 4 %: the tool raises
(``tool_error``), the tool gives up late (``tool_timeout``), the sandbox is closed under its program and says so itself
(``sandbox_error``), the environment raises what nobody expects (``environment_error``), and the environment does not come back
within the deadline of 3 s (``environment_timeout``). Each notes what it is about to do. Success is that of
``claims/terminal.py``: 128 held-out tasks, 4 samples each, in a terminal that does not fail.

**Arms.** *clean*: the five recorded runs of ``claims/terminal.json``, 50 steps. That they are runs of the same code is tried by
the first ten steps of seed 0: their pass rates are those on record to the last digit, or nothing is compared. *failing*: seeds 0
to 4, 50 steps. Both have the recipe's learning rate: whether failures do harm is asked of a run as it is.

**Rule.** Nothing is lost if in each run the counter of each of the five names equals what was noted under it, no other failure is
counted, and episodes and failures add up to all that was dispatched; what is still under way at the end is drawn to its end and
counted with it. *failing* ends as well as *clean* if the interval of the difference (``campaign.shift``, five and five runs) lies
above -0.05 (**yes**), does not if it lies below 0 (**refuted**), and else it is **undecided**.

Written before the first recorded run, after a pilot of two steps.

    python claims/failing_terminal.py       # goes on from claims/failing_terminal.json; about 5 CPU minutes
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import campaign
import terminal

from gimbal.engines.base import drained
from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, Failure, Moment
from gimbal.environments.terminal import Terminal, TerminalSession
from gimbal.ops import philox
from gimbal.recipes import function
from gimbal.records import Drop, Episode, Task
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

RECORD = Path(__file__).with_suffix(".json")
KINDS = ("tool_error", "tool_timeout", "sandbox_error", "environment_error", "environment_timeout")
SHARE = 0.04  # of each
STEPS, FIRST = 50, 10
DEADLINE, MARGIN = 3.0, 0.05
TURNS = 3
SEEDS = (0, 1, 2, 3, 4)

NOTED: Counter[str] = Counter()  # of this process's run
BEGUN: Counter[str] = Counter()  # episodes of each task
LOCK = Lock()


@dataclass(frozen=True, kw_only=True)
class Failing(AbstractEnvironmentSpec):
    """A terminal of which every fifth episode fails."""

    terminal: Terminal = Terminal()
    seed: int = 0

    @property
    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        return self.terminal.schemas

    def open(self) -> FailingSession:
        return FailingSession(self)


class FailingSession(AbstractEnvironment):
    def __init__(self, spec: Failing) -> None:
        self.spec, self.session = spec, spec.terminal.open()
        self.kind, self.left = "", TURNS

    def reset(self, task: Task, seed: int) -> None:
        with LOCK:
            number = BEGUN[task.id]
            BEGUN[task.id] += 1
        self.kind, self.left = fate(self.spec.seed, task.id, number)
        self.session.reset(task, seed)

    def step(self, action: str) -> Moment:
        moment = self.session.step(action)
        self.left -= 1
        if not self.kind or (self.left and not moment.ended):
            return moment
        with LOCK:
            NOTED[self.kind] += 1
        return failed(self.kind, self.session)

    def close(self) -> None:
        self.session.close()


def fate(seed: int, task: str, number: int) -> tuple[str, int]:
    """How an episode fails ("": not), and at which turn."""
    draw = philox("failing terminal", seed, task, number)
    drawn, turn = draw.random(), int(draw.integers(1, TURNS + 1))
    return (KINDS[int(drawn / SHARE)] if drawn < SHARE * len(KINDS) else ""), turn


def failed(kind: str, session: TerminalSession) -> Moment:
    if kind.startswith("tool"):
        raise Failure("an injected failure", "tool", late=kind == "tool_timeout")
    if kind == "sandbox_error":
        session.opened.close()
        return session.step("$print(1)")
    if kind == "environment_error":
        raise OSError("an injected failure")
    time.sleep(2 * DEADLINE)
    return Moment(observation="too late")


def run_of(arm: str, seed: int) -> Run:
    """The recipe, the same for both arms but for who answers."""
    run = replace(function("terminal")(), seed=seed, threads=1)
    if arm == "clean":
        return run
    workflow = replace(run.workflow, tool=Failing(terminal=run.workflow.tool, seed=seed), deadline=DEADLINE)
    return replace(run, workflow=workflow, held_out=replace(run.held_out, workflow=run.workflow), steps=STEPS)


def measure(job: tuple[str, int]) -> dict[str, Any]:
    arm, seed = job
    run = run_of(arm, seed)
    NOTED.clear()
    BEGUN.clear()
    trainer = Trainer(run)
    trainer.begin()
    rates = [round(trainer.advance()[0]["pass_rate"], 3) for _ in range(FIRST if arm == "clean" else STEPS)]
    told = {"arm": arm, "seed": seed, "pass_rate": rates}
    if arm == "failing":
        told |= {"after": terminal.success(run, trainer), **accounted(trainer, run)}
    trainer.close()
    return told


def accounted(trainer: Trainer, run: Run) -> dict[str, Any]:
    """What became of all that was dispatched, with what was still under way."""
    line, rest = trainer.pipeline, [item.settled for item in drained(trainer.engine).values()]
    waiting = [
        one for flight in line.outstanding.values() for one in flight.results.values()
    ]  # of groups not yet whole
    counted = Counter({name.partition("/")[2]: n for name, n in line.drops.items() if name.startswith("rollouts/")})
    counted += Counter(one.reason for one in [*waiting, *rest] if isinstance(one, Drop))
    return {
        "dispatched": line.dispatched * run.num_generations,
        "drawn": line.generated["rollouts"] + sum(isinstance(one, Episode) for one in rest),
        "counted": dict(sorted(counted.items())),
        "noted": dict(sorted(NOTED.items())),
    }


def whole(row: Mapping[str, Any]) -> bool:
    """Whether nothing of a run is lost, and each failure has its name."""
    return row["counted"] == row["noted"] and row["drawn"] + sum(row["counted"].values()) == row["dispatched"]


def recorded(figure: str) -> dict[int, Any]:
    """Of the clean runs, by seed."""
    return {row["seed"]: row[figure] for row in campaign.load(terminal.RECORD) if row["arm"] == "terminal"}


def same(again: Sequence[float]) -> bool:
    return list(again) == recorded("pass_rate")[0][:FIRST]


def section(runs: Sequence[Mapping[str, Any]]) -> str:
    """What is recorded, as the page has it."""
    own = sorted((row for row in runs if row["arm"] == "failing"), key=lambda row: row["seed"])
    again = next((row["pass_rate"] for row in runs if row["arm"] == "clean"), [])
    about = "\n\n".join((__doc__ or "").split("\n\n")[1:-2])
    lines = [
        "## A fifth of a terminal's episodes fail (`failing_terminal.py`)\n",
        about + "\n",
        f"Recorded: {len(own)} of {len(SEEDS)} runs. Seed 0 begins as on record: {'yes' if same(again) else 'no'}.\n",
        "| seed | clean | failing | dispatched | " + " | ".join(KINDS) + " | all accounted for |",
        "|---" * (5 + len(KINDS)) + "|",
    ]
    for row in own:
        counted = " | ".join(f"{row['counted'].get(kind, 0)}" for kind in KINDS)
        scores = f"{recorded('after')[row['seed']]:.3f} | {row['after']:.3f}"
        lines.append(
            f"| {row['seed']} | {scores} | {row['dispatched']:,} | {counted} | {'yes' if whole(row) else 'no'} |"
        )
    return "\n".join([*lines, "", verdict(own, again), ""])


def verdict(own: Sequence[Mapping[str, Any]], again: Sequence[float]) -> str:
    if len(own) < len(SEEDS) or not again:
        return "By the rule nothing is decided until all runs are recorded."
    lost = [row["seed"] for row in own if not whole(row)]
    share = sum(sum(row["counted"].values()) for row in own) / sum(row["dispatched"] for row in own)
    kept = "nothing is lost, and each failure has its name" if not lost else f"runs {lost} do not account for all"
    told = [f"{share:.1%} of the episodes failed. By the rule {kept}."]
    if not same(again):
        return f"{told[0]} Nothing is compared with the clean runs, as their code was another."
    clean = [recorded("after")[seed] for seed in SEEDS]
    apart, low, high = campaign.shift([row["after"] for row in own], clean)
    word = "yes" if low > -MARGIN else "refuted" if high < 0 else "undecided"
    told.append(f"It ends as well: **{word}**, {apart:+.3f} ({low:+.3f} to {high:+.3f}).")
    return " ".join(told)


def left(runs: campaign.Runs) -> Iterator[Iterable[tuple[str, int]]]:
    done = {(row["arm"], row["seed"]) for row in runs}
    yield [job for job in [("clean", 0), *(("failing", seed) for seed in SEEDS)] if job not in done]


def told(row: Mapping[str, Any]) -> str:
    if row["arm"] == "clean":
        return f"the first steps of seed 0 are those on record: {same(row['pass_rate'])}"
    return f"{row['seed']}: {row['after']}, accounted for: {whole(row)}, {row['counted']}"


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, told)
