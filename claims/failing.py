"""A run whose agent fails every fifth time, beside one whose agent does not.

**Setting.** ``gimbal-tiny`` on the demo's sums through a black-box agent (``failing_agent.py``: one request over HTTP, the answer
compared in the agent), GRPO at the recipe's learning rate for both, 15 steps of 8 tasks x 8 episodes, fresh data. Held-out score: 128
tasks, two samples each, through the agent that does not fail. Seeds 1 to 5.

**Arms.** *clean*, and *failing*: 8 % of the episodes raise, 6 % never come back (a deadline of 5 s), 6 % are killed, each after its
answer was drawn, by the random numbers of the episode; each notes what it is about to do in a file.

**Rule.** Nothing is lost: the counters ``agent_error`` and ``agent_timeout`` of a run equal what its agents noted, by kind, and
episodes and counted failures add up to all that was dispatched. It ends as well as a clean run if the median of its held-out scores
lies within the least and the most of the clean runs, or above them.

Written before the first recorded run.

    python claims/failing.py --processes 2       # goes on from claims/failing.json
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import campaign

from gimbal.engines.native import Native
from gimbal.environments.demonstrations import held_out_tasks
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.agent import Agent

RECORD = Path(__file__).with_suffix(".json")
AGENTS = Path(__file__).with_name("failing_agent.py")
ARMS, SEEDS, STEPS = ("clean", "failing"), (1, 2, 3, 4, 5), 15
DEADLINE = 5.0


@dataclass(frozen=True)
class Job:
    arm: str
    seed: int


def run_of(job: Job, steps: int = STEPS) -> Run:
    def agent(name: str) -> Agent:
        return Agent(program=f"{AGENTS}:{name}", acting=DEADLINE, at_once=32)

    return replace(
        grpo(),
        engine=Native(slots=64, precision="float32"),
        workflow=agent(job.arm),
        held_out=HeldOut(tasks=held_out_tasks(size=128), samples=2, workflow=agent("clean")),
        rewards=(),
        prompts_per_step=8,
        num_generations=8,
        max_staleness=0,
        steps=steps,
        seed=job.seed,
        threads=1,
    )


def measure(job: Job, steps: int = STEPS) -> dict[str, Any]:
    # One file for all runs of this process: what starts its agents lives as long, with the environment that it began with.
    log = Path(os.environ.setdefault("FAILING_LOG", tempfile.mkstemp(suffix="-agents")[1]))
    log.write_text("")
    trainer = Trainer(run_of(job, steps))
    try:
        for _ in range(steps):
            trainer.advance()
        score = trainer.evaluate().metrics()["eval/score"]
        line = trainer.pipeline
        drops = {reason: count for reason, count in line.drops.items() if reason.startswith("rollouts/")}
        drawn, dispatched = line.generated["rollouts"], line.dispatched * 8
    finally:
        trainer.close()
    noted = Counter(log.read_text().split())
    return {
        "arm": job.arm,
        "seed": job.seed,
        "score": score,
        "dispatched": dispatched,
        "drawn": drawn,
        "errors": drops.get("rollouts/agent_error", 0),
        "timeouts": drops.get("rollouts/agent_timeout", 0),
        "others": sum(drops.values()) - drops.get("rollouts/agent_error", 0) - drops.get("rollouts/agent_timeout", 0),
        "noted": dict(noted),
    }


def whole(row: Mapping[str, Any]) -> bool:
    """Whether nothing of a run is lost, and nothing counted that was not noted."""
    noted = row["noted"]
    counted = row["errors"] == noted.get("raise", 0) + noted.get("kill", 0) and row["timeouts"] == noted.get("hang", 0)
    return counted and row["others"] == 0 and row["drawn"] + row["errors"] + row["timeouts"] == row["dispatched"]


def section(runs: Sequence[Mapping[str, Any]]) -> str:
    """What is recorded, as the page has it."""
    done = {arm: [row for row in runs if row["arm"] == arm] for arm in ARMS}
    about = "\n\n".join((__doc__ or "").split("\n\n")[1:-2])
    lines = [
        "## A fifth of the agents fail (`failing.py`)\n",
        about + "\n",
        f"Recorded: {sum(map(len, done.values()))} of {len(ARMS) * len(SEEDS)} runs.\n",
        "| arm | runs | held-out score: median (least to most) | dispatched | errors | timeouts | runs that account for all |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm, rows in done.items():
        if rows:
            scores = [row["score"] for row in rows]
            told = f"{statistics.median(scores):.3f} ({min(scores):.3f} to {max(scores):.3f})"
            sums = " | ".join(f"{sum(row[name] for row in rows):,}" for name in ("dispatched", "errors", "timeouts"))
            lines.append(f"| {arm} | {len(rows)} | {told} | {sums} | {sum(map(whole, rows))} |")
    return "\n".join([*lines, "", verdict(done), ""])


def verdict(done: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    if any(len(rows) < len(SEEDS) for rows in done.values()):
        return "By the rule nothing is decided until all runs are recorded."
    clean, failing = ([row["score"] for row in done[arm]] for arm in ARMS)
    middle, lost = statistics.median(failing), [row for rows in done.values() for row in rows if not whole(row)]
    kept = "nothing is lost" if not lost else f"{len(lost)} runs do not account for all"
    as_well = min(clean) <= middle <= max(clean) or middle > max(clean)
    of_seed = {arm: {row["seed"]: row["score"] for row in done[arm]} for arm in ARMS}
    apart = [of_seed["clean"][seed] - of_seed["failing"][seed] for seed in SEEDS]
    lower = sum(one > 0 for one in apart)
    return (
        f"By the rule {kept}, and the median of the failing runs is {'' if as_well else 'not '}within the range of the clean ones. "
        f"Pair by pair they are lower in {lower} of {len(SEEDS)} seeds, by {statistics.fmean(apart):.3f} in the mean: "
        "five seeds cannot exclude a loss of that size."
    )


def left(runs: Sequence[Mapping[str, Any]]) -> Iterator[Iterable[Job]]:
    known = {(row["arm"], row["seed"]) for row in runs}
    yield [Job(arm, seed) for seed in SEEDS for arm in ARMS if (arm, seed) not in known]


def told(row: Mapping[str, Any]) -> str:
    return f"{row['arm']} {row['seed']}: {row['score']:.3f}, all accounted for: {whole(row)}, {row['noted']}"


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, told)
