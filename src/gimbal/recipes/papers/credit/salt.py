from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.shapings.edge_averaged import EdgeAveraged
from gimbal.dataflow.filters.step_turns import StepTurns
from gimbal.environments.demonstrations import CHAIN_SUM, HELD_OUT_SIZE, held_out_tasks, training_tasks
from gimbal.policies.token import Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import HeldOut, Run


def salt() -> Run:
    """SALT (arXiv:2510.20022): averages the advantage of a reasoning step over the correct and wrong answers that share it.

    Trains on sums of four and five terms: in shorter sums, answers that share a step mostly have the same length and thus the same
    weight, and averaging them leaves the gradient unchanged.
    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    longer = {**CHAIN_SUM, "min_terms": 4, "max_terms": 5}
    return replace(
        grpo(),
        tasks=replace(
            training_tasks(), parameters=longer, exclude=replace(held_out_tasks(size=HELD_OUT_SIZE), parameters=longer)
        ),
        held_out=HeldOut(tasks=replace(held_out_tasks(size=256), parameters=longer)),
        sampling=Sampling(max_length=80),
        filters=(StepTurns(separator=" "),),
        shaping=(EdgeAveraged(),),
    )
