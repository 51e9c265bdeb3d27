from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.curricula.variance_sampled import VarianceSampled
from gimbal.environments.demonstrations import held_out_tasks, training_tasks
from gimbal.policies.token import Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import HeldOut, Run

MIXED = {"min_terms": 2, "max_terms": 6, "min_digits": 2, "max_digits": 2}
HELD_OUT = replace(held_out_tasks(size=256), parameters=MIXED)
# A repeating list with a spread of difficulty, so that what is learned about a task is useful.
AGAIN = {
    "tasks": replace(training_tasks(size=256), parameters=MIXED, exclude=HELD_OUT),
    "held_out": HeldOut(tasks=HELD_OUT, samples=4),
    "sampling": Sampling(max_length=96),
}


def vade() -> Run:
    """VADE (arXiv:2511.18902): GRPO on the tasks whose outcomes vary most, by Thompson sampling from each task's past rollouts.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), **AGAIN, curriculum=VarianceSampled())
