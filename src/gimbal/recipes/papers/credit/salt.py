from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.shapings.edge_averaged import EdgeAveraged
from gimbal.dataflow.filters.step_turns import StepTurns
from gimbal.environments.demonstrations import CHAIN_SUM, HELD_OUT_SIZE, held_out_tasks, training_tasks
from gimbal.policies.token import Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import HeldOut, Run


def salt() -> Run:
    """SALT (arXiv:2510.20022): a step of working that right and wrong answers to one task share gets the mean of their advantages.

    On sums of four and five terms: in shorter ones, answers that share a step are mostly of one length, so that they weigh the same,
    and then their mean has the gradient that they had.
    On-policy but for staleness: one update a batch, at a ratio of 1, so the clip never acts.
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
