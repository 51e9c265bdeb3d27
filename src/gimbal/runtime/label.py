"""Values of candidate steps by playing on from them: what a critic of steps is trained on, or offline methods directly."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from gimbal.engines.base import AbstractEngine, Request, drained
from gimbal.records import Drop, Group, Sampling, Task
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.scoring import score


def label(
    engine: AbstractEngine,
    tasks: Sequence[Task],
    rewards: Sequence[AbstractReward],
    sampling: Sampling,
    *,
    samples: int = 8,
    seed: int = 0,
) -> list[Task]:
    """The tasks with ``columns["score"]``: of each text in ``columns["completion"]``, the mean score of ``samples`` rollouts that go
    on from the prompt and that text.

    The score of a step estimates the value of the state that it leads to, V(s'). The engine is loaded and idle, the rewards are open
    and judge by what was sampled alone, so a candidate must not yet hold the answer. A rollout that nothing scored counts as 0.
    """
    assert engine.in_flight == 0, "labelling has the engine to itself"
    asked: dict[int, tuple[int, Task]] = {}
    for place, task in enumerate(tasks):
        for number, text in enumerate(_candidates(task)):
            whole = replace(task, id=f"{task.id}:{number}", prompt=task.prompt + text)
            group = len(asked)
            asked[group] = place, whole
            for sample in range(samples):
                engine.submit(Request(group=group, task=whole, sample=sample, sampling=sampling, seed=seed))
    finished = drained(engine)
    values: list[list[float]] = [[] for _ in tasks]
    for group, (place, whole) in asked.items():
        rollouts = tuple(finished[group, sample].rollout for sample in range(samples))
        outcome = score(Group.of(group, whole, rollouts), rewards)
        kept = () if isinstance(outcome, Drop) else outcome.rollouts
        values[place].append(sum(r.earned for r in kept) / samples)
    return [replace(task, columns={**task.columns, "score": own}) for task, own in zip(tasks, values, strict=True)]


def write(tasks: Iterable[Task], path: Path) -> None:
    """As environments.Jsonl reads them."""
    with path.open("w", encoding="utf-8") as file:
        for task in tasks:
            row = {"id": task.id, "prompt": task.prompt, "answer": task.answer, "data_source": task.source}
            file.write(json.dumps({**task.columns, **row}, ensure_ascii=False) + "\n")


def _candidates(task: Task) -> Sequence[str]:
    texts = task.columns.get("completion")
    if isinstance(texts, str) or not isinstance(texts, Sequence) or "messages" in task.columns:
        raise ValueError(
            f"task {task.id} brings no list of candidate texts to go on from a plain prompt: put one into its column 'completion'"
        )
    return texts
