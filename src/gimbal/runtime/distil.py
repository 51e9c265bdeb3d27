"""A policy's current ability per task: its own correct answers, and how often it finds one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

from gimbal import durable
from gimbal.engines.base import AbstractEngine, Request, drained
from gimbal.learning.weight_sync.receipts import running
from gimbal.records import AbstractSampling, Group, Rollout, Task
from gimbal.report.metrics import passed
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.scoring import decided, score
from gimbal.runtime import device
from gimbal.runtime.run import AbstractRun


def distil(
    engine: AbstractEngine,
    tasks: Sequence[Task],
    rewards: Sequence[AbstractReward],
    sampling: AbstractSampling,
    *,
    samples: int = 8,
    threshold: float | None = None,
    seed: int = 0,
) -> list[Task]:
    """The tasks with ``columns["pass_rate"]``, the share of ``samples`` rollouts that pass as they do in an evaluation (by the first
    reward, which must decide that), or whose score reaches ``threshold`` where one is given, and with ``columns["completion"]``, the
    text of the best of those (of equals the shortest), or none.

    The share is a difficulty for environments.Within: a pool of tasks solved seldom but not never is Within(column="pass_rate",
    above=0.1, upto=0.3) (DoGe, arXiv:2512.06835). The texts are what FormPairs and Demonstrated take: data that the policy made
    itself (Metis-SPECS, arXiv:2510.25801). ``write_tasks`` saves them. The engine is loaded and idle, the rewards are
    open; a rollout without a score counts as not solved.
    """
    assert engine.in_flight == 0, "distilling has the engine to itself"
    if threshold is None and rewards and not decided(rewards):
        raise ValueError(
            f"which rollouts solve their task is up to the first reward, and {rewards[0].name} decides nothing: put one that does "
            "first, for instance with held_out.rewards=FILE.py:FUNCTION"
        )
    for place, task in enumerate(tasks):
        for sample in range(samples):
            engine.submit(Request(group=place, task=task, sample=sample, sampling=sampling, seed=seed))
    finished = drained(engine)
    rollouts = [[finished[place, sample].rollout for sample in range(samples)] for place in range(len(tasks))]
    return [_with_record(task, drawn, rewards, threshold) for task, drawn in zip(tasks, rollouts, strict=True)]


def distilled(run: AbstractRun) -> list[Task]:
    """The held-out tasks of a run, with the results of the policy that it names."""
    held_out = run.held_out
    if held_out is None:
        raise ValueError("this recipe has no held-out tasks; give the tasks to answer: held_out=FILE")
    policy = run.policy.load(run.seed).to(device.prepare(run.threads))
    engine = run.evaluator.start(policy)
    with ExitStack() as opened:
        own = run.rewards if held_out.rewards is None else held_out.rewards
        rewards = [opened.enter_context(closing(reward.open())) for reward in own]
        opened.enter_context(running(engine, policy))  # proved to draw by these weights, as in any evaluation
        tasks = [held_out.tasks[index] for index in range(len(held_out.tasks))]
        return distil(engine, tasks, rewards, run.sampling, samples=held_out.samples, seed=run.seed)


def _with_record(
    task: Task, rollouts: list[Rollout], rewards: Sequence[AbstractReward], threshold: float | None
) -> Task:
    outcome = score(Group.of(0, task, rollouts), rewards)
    scored = outcome.rollouts if isinstance(outcome, Group) else ()
    solved = [r for r in scored if (passed(r) if threshold is None else r.earned >= threshold)]
    # A reference's own, if it had one.
    columns = {key: value for key, value in task.columns.items() if key != "completion"}
    columns["pass_rate"] = len(solved) / len(rollouts)
    if solved:
        columns["completion"] = max(solved, key=lambda r: (r.earned, -r.length, -r.sample)).text
    return replace(task, columns=columns)


def write_tasks(tasks: Iterable[Task], path: Path) -> None:
    """One JSON object per line; environments.Dataset reads back the same tasks, with all columns."""
    with durable.named(path), path.open("w", encoding="utf-8") as file:
        for task in tasks:
            own = {key: value for key, value in task.columns.items() if key != "messages"}
            prompt = task.columns.get("messages", task.prompt)
            row = {**own, "id": task.id, "prompt": prompt, "answer": task.answer, "data_source": task.source}
            file.write(json.dumps(row) + "\n")
