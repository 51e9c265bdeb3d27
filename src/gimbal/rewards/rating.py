"""Tasks rated by a judge, once and for all: what curricula and splits go by."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

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
    listed = list(tasks)
    replies = judge.replies([fill(judge.template, task) for task in listed])
    with path.open("w", encoding="utf-8") as file:
        for task, reply in zip(listed, replies, strict=True):
            verdict = judge.read(reply)
            if verdict is None or isinstance(verdict, NoVerdict):
                counts["unscored" if verdict is None else verdict.reason] += 1
                continue
            number = judge.low + verdict * (judge.high - judge.low) if isinstance(reply, str) else verdict
            file.write(json.dumps({**_row(task), column: number}) + "\n")
            counts["rated"] += 1
    return counts


def _row(task: Task) -> dict[str, Any]:
    own = {key: value for key, value in task.columns.items() if key != "messages"}
    prompt = task.columns.get("messages", task.prompt)
    return {**own, "id": task.id, "prompt": prompt, "answer": task.answer, "data_source": task.source}
