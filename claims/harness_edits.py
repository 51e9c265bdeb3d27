"""Is an edit of a harness better judged by what it said it would fix than by the score? (HarnessLoop, after AHE)

**Setting.** No model: an agent is played by a table. 80 tasks in eight classes of ten; a task passes with probability .8 if its
class works and .1 if not. At first six classes fail. Two attempts a task and evaluation. Sixteen edits, each proposed once, in an
order by seed: *four good* ones make a class work; *two mixed* ones make a class work and break another, wholly or for four of its
ten tasks; *three harmful* ones break a class; *three idle* ones change nothing; *four cluttering* ones take .02 from every task.
Each edit says that it will fix ten tasks. Of those that fix a class eight are of that class, and of the others eight are of one
class that fails at first; two are any tasks. So all edits look alike before they are tried, and the forecasts of the bad ones are
wrong.

**Arms** differ in which tasks an edit is held to (``HarnessLoop``), and have the same 17 evaluations. *forecast*: those that it
named. *poor forecast*: the same where only three of the ten are of the class. *score*: all tasks, without a forecast. *all*: no
edit is taken back. The rate in the table is the loop's ``precision``.

**Figures.** Means of 50 loops a run: the pass rate that the last harness truly has (*score*), .275 at first and .6775 with the best
choice of edits; edits that were kept and fix no class (*bad*); edits that fix one and were taken back (*missed*).

**Rule.** Each arm at the best ``precision`` of 0, .25 and .5 by *score* of seed 100, then seeds 0 to 4. An arm is above another if
the interval of the difference of *score* over all 25 pairs of seeds (exact, 96.8 %: the third from either end) lies above 0.
*Forecasts beat the score*: *forecast* is above *score*. *Taking back helps*: *score* is above *all*. *Even poor forecasts beat the
score*: *poor forecast* is above *score*.

**Limits.** The verdict is about the rule on this pool, and both were made here: how many edits are bad, and how often forecasts are
right, decides it. Forecasts of a language model may be worse, and its edits depend on one another. In the paper no rule but a model
decides, by its reading of the evidence. No weights move.

Written before its runs, after one run of each (seed 99): *forecast* .657, .652 and .659 at the three values of ``precision``, *poor
forecast* .640, .637 and .460, *score* .647, .551 and .275, *all* .503.

    python claims/harness_edits.py     # goes on from claims/harness_edits.json; a minute of one idle core
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import campaign

from gimbal.runtime.harness import EditDecision, HarnessEdit, HarnessLoop, Passes

RECORD = Path(__file__).with_suffix(".json")
FORECAST, POOR, SCORE, ALL = "forecast", "poor forecast", "score", "all"
TUNED = campaign.Tuned((FORECAST, POOR, SCORE, ALL), (0.0, 0.25, 0.5), (0, 1, 2, 3, 4), "score")
COMPARED = {
    "forecasts beat the score": (FORECAST, SCORE),
    "taking back helps": (SCORE, ALL),
    "even poor forecasts beat the score": (POOR, SCORE),
}
CLASSES, SIZE, ATTEMPTS, LOOPS, NAMED = 8, 10, 2, 50, 10
RIGHT = {FORECAST: 8, POOR: 3, SCORE: 8, ALL: 8}  # of the tasks that an edit names, those of its class
TASKS = [f"{kind}:{number}" for kind in range(CLASSES) for number in range(SIZE)]
FAILING = range(6)  # at first
CLUTTER = 0.02

Effects = tuple[tuple[str, float], ...]  # of a harness: task, and what an edit makes of its probability; in order
Job = tuple[str, float, int]  # arm, precision, seed


def of(kind: int, value: float, count: int = SIZE) -> Effects:
    return tuple((f"{kind}:{number}", value) for number in range(count))


POOL: dict[str, Effects] = {
    **{f"good {kind}": of(kind, 0.8) for kind in range(4)},
    "mixed 4": of(4, 0.8) + of(6, 0.1),
    "mixed 5": of(5, 0.8) + of(7, 0.1, 4),
    **{f"harmful {kind}": of(kind, 0.1) for kind in (0, 6, 7)},
    **{f"idle {number}": () for number in range(3)},
    **{f"clutter {number}": (("", CLUTTER),) for number in range(4)},
}
FIXES = {f"good {kind}": kind for kind in range(4)} | {"mixed 4": 4, "mixed 5": 5}


def truth(harness: Effects) -> dict[str, float]:
    """The probability of each task under these edits, in the order in which they were made."""
    chance = {task: 0.1 if int(task[0]) in FAILING else 0.8 for task in TASKS}
    clutter = sum(value for task, value in harness if not task)
    chance |= {task: value for task, value in harness if task}
    return {task: max(value - clutter, 0.0) for task, value in chance.items()}


def edits(arm: str, rng: Random) -> list[HarnessEdit]:
    """All of the pool in a drawn order, with their forecasts."""
    made = []
    for name in rng.sample(sorted(POOL), len(POOL)):
        kind = FIXES.get(name, rng.choice(FAILING))
        own = rng.sample([f"{kind}:{number}" for number in range(SIZE)], RIGHT[arm])
        others = rng.sample([task for task in TASKS if task not in own], NAMED - len(own))
        fixes = frozenset(TASKS if arm == SCORE else own + others)
        made.append(HarnessEdit(name=name, changes=POOL[name], fixes=fixes))
    return made


def loop(arm: str, precision: float, seed: int, number: int) -> tuple[Effects, list[str]]:
    """The last harness, and the names of the edits that it kept."""
    proposed = edits(arm, Random(f"harness edits:{seed}:{number}"))

    def propose(harness: Effects, passes: Passes, decisions: Sequence[EditDecision]) -> HarnessEdit | None:
        return proposed[len(decisions)] if len(decisions) < len(proposed) else None

    def measure(harness: Effects, evaluation: int) -> Passes:
        rng = Random(f"attempts:{arm}:{precision}:{seed}:{number}:{evaluation}")
        return {
            task: sum(rng.random() < value for _ in range(ATTEMPTS)) / ATTEMPTS
            for task, value in truth(harness).items()
        }

    if arm == ALL:
        return sum((POOL[edit.name] for edit in proposed), ()), [edit.name for edit in proposed]
    judging = HarnessLoop(rounds=len(POOL), precision=precision)
    harness, decisions = judging((), propose, measure, lambda harness, changes: harness + changes)
    return harness, [decision.edit.name for decision in decisions if decision.kept]


def measure(job: Job) -> dict[str, Any]:
    arm, precision, seed = job
    begun = time.process_time()
    ends = [loop(arm, precision, seed, number) for number in range(LOOPS)]
    rates = [sum(truth(harness).values()) / len(TASKS) for harness, _ in ends]
    bad = [sum(name not in FIXES for name in kept) for _, kept in ends]
    missed = [len(FIXES.keys() - kept) for _, kept in ends]
    return {
        "arm": arm,
        "rate": precision,
        "seed": seed,
        "score": round(sum(rates) / LOOPS, 4),
        "bad": sum(bad) / LOOPS,
        "missed": sum(missed) / LOOPS,
        "cpu": round(time.process_time() - begun, 2),
    }


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, TUNED.left, measure, campaign.described)
