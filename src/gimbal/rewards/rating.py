"""Tasks rated by a judge, once and for all: what curricula and splits go by."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gimbal.records import Task
from gimbal.rewards.asking import fill
from gimbal.rewards.judge import JudgeScore
from gimbal.rewards.scoring import NoVerdict

INTENSITY = """How much reasoning does the task below take? 1: it is enough to know the answer; 5: many steps that build on each other.

<task>
{prompt}
</task>

End with a line of the form
Score: NUMBER"""


ON_INTENSITY = JudgeScore(template=INTENSITY, low=1.0, high=5.0)


def rate(
    tasks: Iterable[Task], path: Path, judge: JudgeScore = ON_INTENSITY, *, column: str = "difficulty"
) -> Counter[str]:
    """Write the tasks as JSON lines that environments.Jsonl reads, with the judge's number, on the judge's scale, in ``column``.

    A task without a verdict is left out; the result counts them by reason, and those written as "rated".
    """
    counts: Counter[str] = Counter()
    listed, rated = list(tasks), []
    replies = judge.replies([fill(judge.template, task) for task in listed])
    for task, reply in zip(listed, replies, strict=True):
        verdict = judge.read(reply)
        if verdict is None or isinstance(verdict, NoVerdict):
            counts["unscored" if verdict is None else verdict.reason] += 1
            continue
        number = judge.low + verdict * (judge.high - judge.low) if isinstance(reply, str) else verdict
        rated.append(replace(task, columns={**task.columns, column: number}))
        counts["rated"] += 1
    write_tasks(rated, path)
    return counts


def write_tasks(tasks: Iterable[Task], path: Path) -> None:
    """One JSON object a line, which environments.Jsonl reads back as the same tasks, all columns included."""
    with path.open("w", encoding="utf-8") as file:
        for task in tasks:
            own = {key: value for key, value in task.columns.items() if key != "messages"}
            prompt = task.columns.get("messages", task.prompt)
            row = {**own, "id": task.id, "prompt": prompt, "answer": task.answer, "data_source": task.source}
            file.write(json.dumps(row) + "\n")
