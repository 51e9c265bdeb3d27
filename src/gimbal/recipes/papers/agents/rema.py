from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gimbal.environments.demonstrations import held_out_tasks, training_tasks
from gimbal.environments.shared_sums import HANDED, SharedSums
from gimbal.learning.separate import SeparateWeights
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.plan_and_execute import EXECUTOR, PlanAndExecute

FOUR: Mapping[str, int] = {"min_terms": 4, "max_terms": 4, "min_digits": 2, "max_digits": 2}


def rema() -> Run:
    """ReMA (arXiv:2503.09501): a planner and an executor, two models with one outcome; each learns from its own rows.

    The planner adds the first two terms of a sum of four, and the executor, which sees its result and not the sum, ends it. One turn
    each, so that the published ratio of turns is one of sequences; both learn in every step, where published runs alternate every 10.
    On-policy except for staleness, as grpo. `separate={}` is one model for both roles.
    """
    run = grpo()
    held_out = replace(held_out_tasks(size=256), parameters=FOUR)
    tasks = replace(training_tasks(), parameters=FOUR, exclude=held_out)
    return replace(
        run,
        workflow=PlanAndExecute(template=HANDED, plan=r"[=~](-?\d+)\s*$", stop=(" ", "<answer>")),
        tasks=SharedSums(tasks=tasks),
        held_out=HeldOut(tasks=SharedSums(tasks=held_out), samples=4),
        separate={EXECUTOR: SeparateWeights()},
    )
